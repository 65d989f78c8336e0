! Calls of the module `fpna`, with numbers whose sums are exact: the intrinsic functions give them too. Prints what is wrong,
! and how many checks there were. With the argument `stop` it makes a call that ends the program.
program fortran_calls
  use, intrinsic :: iso_fortran_env, only: int64
  use mpi
  use fpna
  implicit none
  integer, parameter :: dp = kind(1d0), sp = kind(1.0)
  real(dp) :: x(6, 5), y(6, 5), w(6, 5), deep(4, 3, 2, 2), by_column(5), by_row(6), nan, none
  real(sp) :: single(7), other(7)
  complex(dp) :: z(3, 3)
  complex(sp) :: c(4)
  logical :: mask(6, 5)
  integer(int64) :: numbers(6, 5), number
  type(fpna_report) :: seen
  type(fpna_acc) :: sum_x, sum_y, sums(2)
  integer :: rank, ranks, ierr, i, j, checks = 0
  character(8) :: how

  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierr)
  do j = 1, 5
    do i = 1, 6
      x(i, j) = i + 10 * j
      y(i, j) = i * j - 7
      w(i, j) = i
      mask(i, j) = mod(i + j, 2) == 0
    end do
  end do
  deep = reshape([(real(i, dp), i=1, 48)], shape(deep))
  single = [(real(i), i=1, 7)]
  other = 2
  z = (1, 2)
  c = (3, -1)
  call get_command_argument(1, how)
  if (how == 'stop') then
    none = fpna_sum(x, MPI_COMM_WORLD, mask=mask(:, :merge(4, 5, rank == ranks - 1)))
    print *, 'it goes on', none
  end if

  call same('sum', fpna_sum(x, MPI_COMM_WORLD), ranks * sum(x))
  call same('sum of a scalar', fpna_sum(real(rank, dp), MPI_COMM_WORLD), ranks * (ranks - 1) / 2._dp)
  call same('sum of nothing', fpna_sum(x(1:0, :), MPI_COMM_WORLD), 0._dp)
  call same('sum of a section', fpna_sum(x(::2, 2:4), MPI_COMM_WORLD), ranks * sum(x(::2, 2:4)))
  call same('sum of rank 4', fpna_sum(deep(:, 3:1:-2, :, :), MPI_COMM_WORLD), ranks * sum(deep(:, 3:1:-2, :, :)))
  call same('masked', fpna_sum(x, MPI_COMM_WORLD, mask=mask), ranks * sum(x, mask))
  call same('masked section', fpna_sum(x(2:5, ::2), MPI_COMM_WORLD, FPNA_RUN, mask(2:5, ::2)), &
            ranks * sum(x(2:5, ::2), mask(2:5, ::2)))
  call same('weighted', fpna_sum(x, MPI_COMM_WORLD, FPNA_LAYOUT, weights=w, threads=2), ranks * sum(w * x))
  call same('dot', fpna_dot(x, y, MPI_COMM_WORLD, guarantee=FPNA_LAYOUT), ranks * sum(x * y))
  call same('weighted dot', fpna_dot(x(6:1:-1, :), y, MPI_COMM_WORLD, weights=w), ranks * sum(w * x(6:1:-1, :) * y))
  call same('norm', fpna_norm2(deep, MPI_COMM_WORLD), sqrt(ranks * sum(deep**2)))
  call same('masked norm', fpna_norm2(x, MPI_COMM_WORLD, mask=mask), sqrt(ranks * sum(x**2, mask)))
  call same('single', real(fpna_sum(single, MPI_COMM_WORLD), dp), ranks * 28._dp)
  call same('single dot', real(fpna_dot(single, other, MPI_COMM_WORLD), dp), ranks * 56._dp)
  call same('single norm', real(fpna_norm2(single(:1), MPI_COMM_WORLD), dp), real(sqrt(real(ranks)), dp))
  call same('complex', real(fpna_sum(z, MPI_COMM_WORLD)), ranks * 9._dp)
  call same('complex section', aimag(fpna_sum(z(::2, :), MPI_COMM_WORLD)), ranks * 12._dp)
  call same('complex dot', real(fpna_dot(z, z, MPI_COMM_WORLD)), ranks * 45._dp)
  call same('complex dot', aimag(fpna_dot(z, conjg(z), MPI_COMM_WORLD)), ranks * (-36._dp))
  call same('complex norm', fpna_norm2(z, MPI_COMM_WORLD), sqrt(ranks * 45._dp))
  call same('single complex', real(aimag(fpna_sum(c, MPI_COMM_WORLD)), dp), ranks * (-4._dp))
  call same('single complex norm', real(fpna_norm2(c, MPI_COMM_WORLD), dp), real(sqrt(ranks * 40.0), dp))

  call fpna_sum_fields(x, by_column, MPI_COMM_WORLD)
  call all_same('fields', by_column, ranks * sum(x, 1))
  call fpna_sum_fields(x, by_row, MPI_COMM_WORLD, fields_first=.true.)
  call all_same('fields first', by_row, ranks * sum(x, 2))
  call fpna_sum_fields(x(:, ::2), by_column(1:5:2), MPI_COMM_WORLD, mask=mask(:, 1))
  call all_same('masked fields', by_column(::2), ranks * sum(x(::2, ::2), 1))
  call fpna_sum_fields(deep, by_row(:2), MPI_COMM_WORLD, weights=deep(:, :, :, 1))
  call all_same('fields of rank 3', by_row(:2), ranks * [sum(deep(:, :, :, 1)**2), sum(deep(:, :, :, 1) * deep(:, :, :, 2))])
  call fpna_sum_fields(deep, by_row(:4), MPI_COMM_WORLD, fields_first=.true.)
  call all_same('first of rank 4', by_row(:4), ranks * [(sum(deep(i, :, :, :)), i=1, 4)])

  call fpna_acc_add(sum_x, x(1:6:5, :))
  call fpna_acc_add(sum_x, 1._dp)
  call fpna_acc_add(sum_y, single)
  call fpna_acc_merge(sum_x, sum_y)
  call fpna_acc_add_products(sum_x, x, y)
  call fpna_acc_add_products(sum_x, single, other)
  none = sum(x(1:6:5, :)) + 29 + sum(x * y) + 56
  call same('accumulator', fpna_acc_value(sum_x), none)
  sums = sum_x
  call fpna_acc_allreduce(sums, MPI_COMM_WORLD)
  call fpna_acc_allreduce(sum_x, MPI_COMM_WORLD, ierr)
  call same('accumulators', fpna_acc_value(sums(2)), ranks * none)
  call same('accumulator', real(fpna_acc_value_single(sum_x), dp), ranks * none + ierr)

  by_row = [1, 2, 3, 4, 5, 6] + 10 * rank
  call fpna_allreduce(by_row, MPI_COMM_WORLD)
  call all_same('allreduce', by_row, [(ranks * i + 5._dp * ranks * (ranks - 1), i=1, 6)])
  call fpna_allreduce(c, MPI_COMM_WORLD, FPNA_RUN)
  call same('allreduce of complex', real(aimag(c(4)), dp), -1._dp * ranks)
  call fpna_allreduce(by_row, MPI_COMM_WORLD, FPNA_LAYOUT, ierr)
  if (ierr /= FPNA_ARGUMENT) print *, 'an allreduce under layout was taken'
  numbers = reshape([(int(30 * rank + i, int64), i=1, 30)], shape(numbers))
  call fpna_minloc(x, numbers, MPI_COMM_WORLD, none, number)
  call all_same('minloc', [none, real(number, dp)], [11._dp, 1._dp])
  call fpna_maxloc(x - 100 * rank, numbers, MPI_COMM_WORLD, none, number)
  call all_same('maxloc', [none, real(number, dp)], [56._dp, 30._dp])
  call fpna_scatter_add(reshape(x, [30]), [((j, i=1, 6), j=1, 5)], by_column, MPI_COMM_WORLD)
  call all_same('scatter', by_column, ranks * sum(x, 1))
  call fpna_scatter_add(single, [(int(1 + mod(i, 2), int64), i=1, 7)], other(:2), MPI_COMM_WORLD, threads=2)
  call all_same('scatter of single', real(other(:2), dp), ranks * [12._dp, 16._dp])
  call fpna_scatter_add(single, [(i, i=1, 7)], other(:merge(6, 7, rank == ranks - 1)), MPI_COMM_WORLD, ierr=ierr)
  call refused('cell 7 of element 7 is not from 1 to 6')
  call fpna_scatter_add(single, [(i, i=1, merge(6, 7, rank == ranks - 1))], other, MPI_COMM_WORLD, ierr=ierr)
  call refused('cell has the shape (6), expected (7)')
  call fpna_minloc(x(:, :merge(4, 5, rank == ranks - 1)), numbers, MPI_COMM_WORLD, none, number, ierr)
  call refused('numbers has the shape (6, 5), expected (6, 4)')

  none = fpna_sum(x, MPI_COMM_WORLD, report=seen)
  call same('no field', real(seen%field, dp), 0._dp)
  nan = 0
  nan = nan / nan
  if (rank == ranks - 1) x(3, 2) = nan
  none = fpna_sum(x, MPI_COMM_WORLD, report=seen)
  call all_same('the NaN', real([seen%field, seen%rank, int(seen%number)], dp), [1._dp, ranks - 1._dp, 9._dp])
  call fpna_sum_fields(x, by_column, MPI_COMM_WORLD, report=seen)
  call all_same('its field', real([seen%field, seen%rank, int(seen%number)], dp), [2._dp, ranks - 1._dp, 3._dp])

  if (rank == ranks - 1) then
    none = fpna_sum(x, MPI_COMM_WORLD, mask=mask(:, :4), ierr=ierr)
  else
    none = fpna_sum(x, MPI_COMM_WORLD, ierr=ierr)
  end if
  call refused('mask has the shape (6, 4), expected (6, 5)')
  if (rank == ranks - 1) then
    none = fpna_dot(x, y(2:, :), MPI_COMM_WORLD, ierr=ierr)
  else
    none = fpna_dot(x, y, MPI_COMM_WORLD, ierr=ierr)
  end if
  call refused('y has the shape (5, 5), expected (6, 5)')
  call fpna_sum_fields(x(:, merge(2, 1, rank == ranks - 1):), by_column, MPI_COMM_WORLD, ierr=ierr)
  call refused('x has 4 fields, and totals has 5 elements')
  call fpna_sum_fields(x(:, :merge(4, 5, rank == ranks - 1)), by_column(:merge(4, 5, rank == ranks - 1)), &
                       MPI_COMM_WORLD, ierr=ierr)
  if (ranks > 1) call told('ranks differ: 4 fields on rank ' // achar(48 + ranks - 1) // ', 5 fields on rank 0')
  none = fpna_sum(x, MPI_COMM_WORLD, guarantee=merge(FPNA_RUN, FPNA_EXACT, rank == 0), ierr=ierr)
  if (ranks > 1) call told('ranks differ: FPNA_RUN on rank 0, FPNA_EXACT on rank 1')
  none = fpna_sum(x, MPI_COMM_WORLD, guarantee=4, ierr=ierr)
  if (ierr /= FPNA_ARGUMENT) print *, 'a guarantee that there is not was taken'
  if (rank == 0) print '(i0, a)', checks, ' checks'
  call MPI_Finalize(ierr)

contains

  subroutine same(what, value, expected)
    character(*), intent(in) :: what
    real(dp), intent(in) :: value, expected
    checks = checks + 1
    if (value /= expected) print *, what, value, expected
  end subroutine

  subroutine all_same(what, values, expected)
    character(*), intent(in) :: what
    real(dp), intent(in) :: values(:), expected(:)
    integer :: k
    do k = 1, size(values)
      call same(what, values(k), expected(k))
    end do
  end subroutine

  subroutine refused(why)
    character(*), intent(in) :: why
    character(8) :: number
    checks = checks + 1
    write (number, '(i0)') ranks - 1
    call told('rank ' // trim(number) // ': ' // why)
  end subroutine

  subroutine told(why)
    character(*), intent(in) :: why
    if (ierr /= FPNA_ARGUMENT) print *, 'taken: ', why
    if (index(fpna_error(), why) == 0) print *, fpna_error(), ' expected ', why
  end subroutine
end program
