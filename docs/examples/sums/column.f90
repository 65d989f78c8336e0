! Columns of an ocean: 16 x 48 columns of 20 levels. Each rank has some of the 48 rows.
!
!     mpifort -O2 -ffp-contract=off $(fpna config --fflags) column.f90 -o column $(fpna config --flibs)
!     mpirun -n 4 ./column plain     each rank adds its cells, MPI_Allreduce adds the ranks
!     mpirun -n 4 ./column fpna      fpna_sum_fields adds the cells of all ranks without error, all fields in one message
!
! Water mixes within a column. The columns meet in global sums: the flux at the surface keeps the heat and the salt of
! the whole ocean, as in climate models. Everything else is computed cell by cell, in one order on any number of ranks.
program column
  use mpi
  use fpna
  implicit none
  integer, parameter :: dp = kind(1d0), levels = 20, width = 16, length = 48, steps = 40, sums = 11
  character(9), parameter :: names(sums + 1) = [character(9) :: 'volume', 'mass', 'heat', 'salt', 'momentum', 'kinetic', &
    'potential', 'buoyancy', 'shear', 'heat^2', 'salt^2', 'CFL']
  real(dp), parameter :: depth = 10, step_s = 3600, gravity = 9.81_dp, mixing = 4e-3_dp, density = 1027
  real(dp), allocatable, dimension(:, :, :) :: t, s, u, dz, rho
  real(dp), allocatable :: cells(:, :, :, :)
  real(dp) :: totals(sums + 1), target(2), own(sums), own_cfl
  integer :: rank, ranks, ierr, first, rows, i, j, step, hash
  character(8) :: how
  character(64) :: line

  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierr)
  call get_command_argument(1, how)
  if ((how /= 'plain' .and. how /= 'fpna') .or. ranks > length) error stop 'usage: column plain|fpna, on at most 48 ranks'
  first = rank * length / ranks
  rows = (rank + 1) * length / ranks - first
  allocate (t(levels, width, rows), s(levels, width, rows), u(levels, width, rows), dz(levels, width, rows))
  allocate (rho(levels, width, rows), cells(levels, width, rows, sums))
  do j = 1, rows
    do i = 1, width
      call fill(t(:, i, j), s(:, i, j), u(:, i, j), dz(:, i, j), first + j, i)
    end do
  end do

  hash = -2128831035  ! 2166136261, where FNV-1a begins
  target = 0
  do step = 0, steps
    rho = density * (1 - 2e-4_dp * (t - 10) + 8e-4_dp * (s - 35))
    cells(:, :, :, 1) = dz
    cells(:, :, :, 2) = rho * dz
    cells(:, :, :, 3) = 3990 * density * t * dz
    cells(:, :, :, 4) = s * dz
    cells(:, :, :, 5) = rho * u * dz
    cells(:, :, :, 6) = 0.5_dp * rho * u * u * dz
    do i = 1, levels
      cells(i, :, :, 7) = -gravity * rho(i, :, :) * (i - 0.5_dp) * dz(i, :, :) * dz(i, :, :)
    end do
    cells(:, :, :, 8) = gravity * (density - rho) / density * dz
    cells(1, :, :, 9) = 0
    cells(2:, :, :, 9) = ((u(2:, :, :) - u(:levels - 1, :, :)) / depth)**2
    cells(:, :, :, 10) = t * t * dz
    cells(:, :, :, 11) = s * s * dz

    if (how == 'plain') then
      own = [(sum(cells(:, :, :, i)), i = 1, sums)]
      call MPI_Allreduce(own, totals, sums, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, ierr)
    else
      call fpna_sum_fields(cells, totals(:sums), MPI_COMM_WORLD)
    end if
    own_cfl = maxval(abs(u)) * step_s / 1e4_dp  ! the largest has no order
    call MPI_Allreduce(own_cfl, totals(sums + 1), 1, MPI_DOUBLE_PRECISION, MPI_MAX, MPI_COMM_WORLD, ierr)
    do i = 1, sums + 1
      hash = hashed(hash, totals(i))
    end do

    if (step == 0) target = totals(3:4)
    do j = 1, rows
      do i = 1, width
        call advance(t(:, i, j), s(:, i, j), u(:, i, j), dz(:, i, j), first + j)
      end do
    end do
    t(1, :, :) = t(1, :, :) + (target(1) - totals(3)) / (3990 * density * depth * width * length)
    s(1, :, :) = s(1, :, :) + (target(2) - totals(4)) / (depth * width * length)
  end do

  if (rank == 0) then
    do i = 1, sums + 1
      write (line, '(a, es24.16)') names(i), totals(i)
      print '(a)', trim(line)
    end do
    print '(a, z8.8)', 'hash ', hash
  end if
  call MPI_Finalize(ierr)

contains

  ! A column at first. `row`, `place`: of the whole ocean, so that it does not matter which rank has the column.
  subroutine fill(t, s, u, dz, row, place)
    real(dp), intent(out) :: t(:), s(:), u(:), dz(:)
    integer, intent(in) :: row, place
    integer :: k
    do k = 1, levels
      t(k) = 4 + 20 / (1 + 0.2_dp * k) - 0.1_dp * abs(row - 24) + 0.03_dp * mod(7 * place + row, 5)
      s(k) = 35 + 0.02_dp * k - 0.01_dp * mod(3 * place + 2 * row, 7)
      u(k) = 0.3_dp / k - 0.01_dp * mod(row + place, 3)
      dz(k) = depth + 0.1_dp * mod(k * place, 4)
    end do
  end subroutine

  ! A step of a column: mixing between its levels, sun on the rows in the middle, wind.
  subroutine advance(t, s, u, dz, row)
    real(dp), intent(inout) :: t(:), s(:), u(:)
    real(dp), intent(in) :: dz(:)
    integer, intent(in) :: row
    call mix(t, dz)
    call mix(s, dz)
    call mix(u, dz)
    t(1) = t(1) + step_s * 1e-6_dp * (24 - abs(row - 24) - t(1)) / dz(1)
    u(1) = u(1) + step_s * 1e-7_dp * (row - 24) / dz(1)
  end subroutine

  subroutine mix(x, dz)
    real(dp), intent(inout) :: x(:)
    real(dp), intent(in) :: dz(:)
    real(dp) :: flux(0:levels)
    flux(0) = 0
    flux(levels) = 0
    flux(1:levels - 1) = mixing * (x(2:) - x(:levels - 1)) / depth
    x = x + step_s * (flux(1:) - flux(:levels - 1)) / dz
  end subroutine

  ! FNV-1a of 32 bits over the bits of a number.
  integer function hashed(before, value) result(hash)
    integer, intent(in) :: before
    real(dp), intent(in) :: value
    integer(selected_int_kind(18)) :: bits, wide
    integer :: k
    bits = transfer(value, bits)
    wide = iand(int(before, kind(wide)), int(z'FFFFFFFF', kind(wide)))
    do k = 0, 7
      wide = iand(ieor(wide, ibits(bits, 8 * k, 8)) * 16777619, int(z'FFFFFFFF', kind(wide)))
    end do
    hash = transfer(wide, hash)
  end function
end program
