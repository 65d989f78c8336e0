! Rank 0 takes messages by waits for any, tests for some, and probes; it prints what it saw, with the number of its tests.
program racy
  use mpi
  implicit none
  integer, parameter :: each = 4, most = 16
  integer :: ierr, rank, ranks, r, k, i, done, polls, requests(most), which(most), status(MPI_STATUS_SIZE), delay
  integer :: taken(most)
  double precision :: got(most), x
  logical :: flag
  character(len=16) :: text
  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierr)
  call get_environment_variable('DELAYS', text)
  read (text, *) delay
  if (rank > 0) then
    do k = 1, 3 * each
      call pause_for(mod(7919 * (rank + 31 * delay) * k + 104729 * delay, 3000) * 1d-6)
      x = 100 * rank + k
      call MPI_Send(x, 1, MPI_DOUBLE_PRECISION, 0, (k - 1) / each, MPI_COMM_WORLD, ierr)
    end do
  else
    do r = 1, ranks - 1
      do k = 1, each
        call MPI_Irecv(got((r - 1) * each + k), 1, MPI_DOUBLE_PRECISION, r, 0, MPI_COMM_WORLD, &
                       requests((r - 1) * each + k), ierr)
      end do
    end do
    do i = 1, (ranks - 1) * each
      call MPI_Waitany((ranks - 1) * each, requests, which(1), MPI_STATUS_IGNORE, ierr)
      write (*, '(i0,1x)', advance='no') nint(got(which(1)))
    end do
    do k = 1, (ranks - 1) * each
      call MPI_Irecv(got(k), 1, MPI_DOUBLE_PRECISION, MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, requests(k), ierr)
    end do
    polls = 0
    i = 0
    do while (i < (ranks - 1) * each)
      polls = polls + 1
      call MPI_Testsome((ranks - 1) * each, requests, done, which, MPI_STATUSES_IGNORE, ierr)
      do k = 1, done
        write (*, '(i0,a,i0,1x)', advance='no') which(k), ':', nint(got(which(k)))
      end do
      i = i + done
    end do
    do i = 1, (ranks - 1) * each
      flag = .false.
      do while (.not. flag)
        polls = polls + 1
        call MPI_Iprobe(MPI_ANY_SOURCE, 2, MPI_COMM_WORLD, flag, status, ierr)
      end do
      call MPI_Irecv(x, 1, MPI_DOUBLE_PRECISION, status(MPI_SOURCE), 2, MPI_COMM_WORLD, requests(1), ierr)
      flag = .false.
      do while (.not. flag)
        polls = polls + 1
        call MPI_Test(requests(1), flag, MPI_STATUS_IGNORE, ierr)
      end do
      write (*, '(i0,1x)', advance='no') nint(x)
    end do
    write (*, '(i0)') polls
  end if
  call MPI_Finalize(ierr)
contains
  subroutine pause_for(seconds)
    double precision, intent(in) :: seconds
    double precision :: until
    until = MPI_Wtime() + seconds
    do while (MPI_Wtime() < until)
    end do
  end subroutine
end program
