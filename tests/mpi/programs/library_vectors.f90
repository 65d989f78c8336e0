! The sums of library_vectors.c by the interface for Fortran: library_vectors FILE.
program library_vectors
  use, intrinsic :: iso_fortran_env, only: int32, int64, real32, real64
  use mpi
  use fpna
  implicit none
  character(64) :: name
  character(256) :: path
  character(1) :: letter
  integer :: unit, status, rank, ranks, ierr, guarantee, fields, n, own, i, numbers
  character(16), allocatable :: words(:)
  integer(int64), allocatable :: bits(:, :)
  real(real32), allocatable :: x4(:, :), t4(:)
  real(real64), allocatable :: x8(:, :), t8(:)
  complex(real32), allocatable :: c4(:, :), s4(:)
  complex(real64), allocatable :: c8(:, :), s8(:)

  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierr)
  call get_command_argument(1, path)
  open (newunit=unit, file=trim(path), status='old', action='read')
  do
    read (unit, *, iostat=status) name, letter, guarantee, fields, n
    if (status /= 0) exit
    numbers = fields * merge(1, 2, letter == 's' .or. letter == 'd')
    allocate (words(numbers), bits(numbers, (n + ranks - 1) / ranks))
    own = 0
    do i = 0, n - 1
      read (unit, *) words
      if (mod(i, ranks) /= rank) cycle
      own = own + 1
      read (words, '(z16)') bits(:, own)
    end do
    bits = bits(:, :own)
    allocate (t4(fields), t8(fields), s4(fields), s8(fields))
    select case (letter)
    case ('s')
      x4 = reshape(transfer(int(bits, int32), x4, size(bits)), [fields, own])
      call fpna_sum_fields(x4, t4, MPI_COMM_WORLD, fields_first=.true., guarantee=guarantee)
      call say(int(transfer(t4, [0_int32]), int64), 8)
    case ('d')
      x8 = reshape(transfer(bits, x8, size(bits)), [fields, own])
      call fpna_sum_fields(x8, t8, MPI_COMM_WORLD, fields_first=.true., guarantee=guarantee)
      call say(transfer(t8, [0_int64]), 16)
    case ('c')
      c4 = reshape(transfer(int(bits, int32), c4, fields * own), [fields, own])
      call fpna_sum_fields(c4, s4, MPI_COMM_WORLD, fields_first=.true., guarantee=guarantee)
      call say(int(transfer(s4, [0_int32]), int64), 8)
    case default
      c8 = reshape(transfer(bits, c8, fields * own), [fields, own])
      call fpna_sum_fields(c8, s8, MPI_COMM_WORLD, fields_first=.true., guarantee=guarantee)
      call say(transfer(s8, [0_int64]), 16)
    end select
    deallocate (words, bits, t4, t8, s4, s8)
  end do
  close (unit)
  call MPI_Finalize(ierr)

contains

  ! Integers of so many hexadecimal digits.
  subroutine say(values, digits)
    integer(int64), intent(in) :: values(:)
    integer, intent(in) :: digits
    integer :: k
    character(16) :: text
    if (rank /= 0) return
    write (*, '(a)', advance='no') trim(name)
    do k = 1, size(values)
      write (text, '(z16.16)') values(k)
      write (*, '(1x, a)', advance='no') text(17 - digits:)
    end do
    print *
  end subroutine
end program
