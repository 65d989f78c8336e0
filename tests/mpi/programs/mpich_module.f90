! The module `mpi` for the calls of docs/examples/sums/column.f90 with an MPICH that was built without Fortran, as that of the
! package index: the C functions, whose handles are integers there.
module mpi
  use, intrinsic :: iso_c_binding
  implicit none
  integer, parameter :: MPI_COMM_WORLD = 1140850688, MPI_DOUBLE_PRECISION = 1275070475, MPI_SUM = 1476395011
  integer, parameter :: MPI_MAX = 1476395009

  interface
    integer(c_int) function c_init(argc, argv) bind(c, name='MPI_Init')
      import
      type(c_ptr), value :: argc, argv
    end function
    integer(c_int) function c_rank(comm, rank) bind(c, name='MPI_Comm_rank')
      import
      integer(c_int), value :: comm
      integer(c_int), intent(out) :: rank
    end function
    integer(c_int) function c_size(comm, size) bind(c, name='MPI_Comm_size')
      import
      integer(c_int), value :: comm
      integer(c_int), intent(out) :: size
    end function
    integer(c_int) function c_allreduce(own, total, count, type, operation, comm) bind(c, name='MPI_Allreduce')
      import
      real(c_double), intent(in) :: own(*)
      real(c_double), intent(out) :: total(*)
      integer(c_int), value :: count, type, operation, comm
    end function
    integer(c_int) function c_finalize() bind(c, name='MPI_Finalize')
      import
    end function
  end interface

  interface MPI_Allreduce
    module procedure of_many, of_one
  end interface

contains

  subroutine MPI_Init(code)
    integer, intent(out) :: code
    code = c_init(c_null_ptr, c_null_ptr)
  end subroutine

  subroutine MPI_Comm_rank(comm, rank, code)
    integer, intent(in) :: comm
    integer, intent(out) :: rank, code
    code = c_rank(comm, rank)
  end subroutine

  subroutine MPI_Comm_size(comm, size, code)
    integer, intent(in) :: comm
    integer, intent(out) :: size, code
    code = c_size(comm, size)
  end subroutine

  subroutine of_many(own, total, count, type, operation, comm, code)
    real(c_double), intent(in) :: own(:)
    real(c_double), intent(out), contiguous :: total(:)
    integer, intent(in) :: count, type, operation, comm
    integer, intent(out) :: code
    code = c_allreduce(own, total, count, type, operation, comm)
  end subroutine

  subroutine of_one(own, total, count, type, operation, comm, code)
    real(c_double), intent(in) :: own
    real(c_double), intent(out) :: total
    integer, intent(in) :: count, type, operation, comm
    integer, intent(out) :: code
    real(c_double) :: totals(1)
    code = c_allreduce([own], totals, count, type, operation, comm)
    total = totals(1)
  end subroutine

  subroutine MPI_Finalize(code)
    integer, intent(out) :: code
    code = c_finalize()
  end subroutine
end module
