! One-sided calls of Fortran: each rank gives its right neighbour two numbers, fetches two, adds one and fetches that place.
program windows
  use mpi
  implicit none
  integer :: rank, ranks, right, left, window, ierr, request
  double precision :: memory(6), x(2), got(2), before, fetched
  integer(MPI_ADDRESS_KIND) :: place
  integer :: i

  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierr)
  right = mod(rank + 1, ranks)
  left = mod(rank + ranks - 1, ranks)
  x = [rank + 0.5d0, rank + 0.25d0]
  memory = [(100 * rank + i, i = 0, 5)]
  call MPI_Win_create(memory, 48_MPI_ADDRESS_KIND, 8, MPI_INFO_NULL, MPI_COMM_WORLD, window, ierr)
  call MPI_Win_fence(0, window, ierr)
  place = 0
  call MPI_Put(x, 2, MPI_DOUBLE_PRECISION, right, place, 2, MPI_DOUBLE_PRECISION, window, ierr)
  place = 2
  call MPI_Get(got, 2, MPI_DOUBLE_PRECISION, right, place, 2, MPI_DOUBLE_PRECISION, window, ierr)
  place = 4
  call MPI_Accumulate(x, 1, MPI_DOUBLE_PRECISION, right, place, 1, MPI_DOUBLE_PRECISION, MPI_SUM, window, ierr)
  place = 5
  call MPI_Fetch_and_op(x, before, MPI_DOUBLE_PRECISION, right, place, MPI_SUM, window, ierr)
  call MPI_Win_fence(0, window, ierr)
  if (memory(1) /= left + 0.5d0 .or. got(1) /= 100 * right + 2) call MPI_Abort(MPI_COMM_WORLD, 9, ierr)
  call MPI_Win_lock(MPI_LOCK_SHARED, right, 0, window, ierr)
  place = 3
  call MPI_Rget(fetched, 1, MPI_DOUBLE_PRECISION, right, place, 1, MPI_DOUBLE_PRECISION, window, request, ierr)
  call MPI_Wait(request, MPI_STATUS_IGNORE, ierr)
  call MPI_Win_unlock(right, window, ierr)
  call MPI_Win_free(window, ierr)
  if (fetched /= 100 * right + 3) call MPI_Abort(MPI_COMM_WORLD, 9, ierr)
  call MPI_Finalize(ierr)
end program
