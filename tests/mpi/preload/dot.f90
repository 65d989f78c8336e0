! A dot product in Fortran: blocking and nonblocking sums, in place and not, and receives from any source.
program dot
  use mpi
  implicit none
  integer :: rank, size, ierr, request, k, status(MPI_STATUS_SIZE)
  double precision :: own, total, part, other, pair(2)
  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  call MPI_Comm_size(MPI_COMM_WORLD, size, ierr)
  own = 1d0 / (rank + 3) + 1d3 * mod(rank, 2)
  call MPI_Allreduce(own, total, 1, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, ierr)
  pair = (/ own, total /)
  call MPI_Allreduce(MPI_IN_PLACE, pair, 2, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, ierr)
  call MPI_Iallreduce(own, other, 1, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, request, ierr)
  call MPI_Wait(request, MPI_STATUS_IGNORE, ierr)
  if (rank == 0) then
    do k = 1, size - 1
      call MPI_Recv(part, 1, MPI_DOUBLE_PRECISION, MPI_ANY_SOURCE, 5, MPI_COMM_WORLD, status, ierr)
      if (status(MPI_SOURCE) /= nint(part)) stop 7
    end do
  else
    call MPI_Send(dble(rank), 1, MPI_DOUBLE_PRECISION, 0, 5, MPI_COMM_WORLD, ierr)
  end if
  call MPI_Bcast(pair, 2, MPI_DOUBLE_PRECISION, 0, MPI_COMM_WORLD, ierr)
  if (rank == 0) print '(4(z16.16, 1x))', total, pair, other
  call MPI_Finalize(ierr)
end program
