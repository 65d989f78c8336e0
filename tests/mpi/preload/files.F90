! Every call of Fortran that writes or reads a file, with the module mpi, or mpi_f08 if F08 is defined. Rank R writes 4 numbers
! 1000 R + CALL + I / 16 in call CALL, from 0 on, and reads what it wrote.
program files
#ifdef F08
  use mpi_f08
#else
  use mpi
#endif
  implicit none
#ifdef F08
  type(MPI_File) :: file
  type(MPI_Request) :: request
  type(MPI_Datatype) :: pattern
  type(MPI_Status) :: status
#define IGNORED MPI_STATUS_IGNORE
#else
  integer :: file, request, pattern, status(MPI_STATUS_SIZE)
#define IGNORED MPI_STATUS_IGNORE
#endif
  integer, parameter :: n = 4
  integer :: rank, ranks, ierr, calls, got
  integer(MPI_OFFSET_KIND) :: at
  double precision :: x(n)
  character(len=80) :: path

  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierr)
  calls = 0
  path = 'forms.dat'
  call MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE + MPI_MODE_RDWR, MPI_INFO_NULL, file, ierr)
  at = 4096 * rank
  call MPI_File_seek(file, at, MPI_SEEK_SET, ierr)
  call fill()
  call MPI_File_write(file, x, n, MPI_DOUBLE_PRECISION, IGNORED, ierr)
  call fill()
  call MPI_File_write_at(file, at + 512, x, n, MPI_DOUBLE_PRECISION, IGNORED, ierr)
  call fill()
  call MPI_File_write_all(file, x, n, MPI_DOUBLE_PRECISION, status, ierr)
  call fill()
  call MPI_File_write_at_all(file, at + 544, x, n, MPI_DOUBLE_PRECISION, IGNORED, ierr)
  call fill()
  call MPI_File_iwrite(file, x, n, MPI_DOUBLE_PRECISION, request, ierr)
  call MPI_Wait(request, IGNORED, ierr)
  call fill()
  call MPI_File_iwrite_at(file, at + 576, x, n, MPI_DOUBLE_PRECISION, request, ierr)
  call MPI_Wait(request, IGNORED, ierr)
  call fill()
  call MPI_File_iwrite_all(file, x, n, MPI_DOUBLE_PRECISION, request, ierr)
  call MPI_Wait(request, IGNORED, ierr)
  call fill()
  call MPI_File_iwrite_at_all(file, at + 608, x, n, MPI_DOUBLE_PRECISION, request, ierr)
  call MPI_Wait(request, IGNORED, ierr)
  call fill()
  call MPI_File_write_all_begin(file, x, n, MPI_DOUBLE_PRECISION, ierr)
  call MPI_File_write_all_end(file, x, IGNORED, ierr)
  call fill()
  call MPI_File_write_at_all_begin(file, at + 640, x, n, MPI_DOUBLE_PRECISION, ierr)
  call MPI_File_write_at_all_end(file, x, IGNORED, ierr)
  call MPI_File_seek(file, at, MPI_SEEK_SET, ierr)
  call MPI_File_read(file, x, n, MPI_DOUBLE_PRECISION, IGNORED, ierr)
  call MPI_File_read_at(file, at + 512, x, n, MPI_DOUBLE_PRECISION, status, ierr)
  call MPI_Get_count(status, MPI_DOUBLE_PRECISION, got, ierr)
  if (got /= n .or. x(1) /= 1000 * rank + 2) call MPI_Abort(MPI_COMM_WORLD, 9, ierr)
  call MPI_File_read_all(file, x, n, MPI_DOUBLE_PRECISION, IGNORED, ierr)
  call MPI_File_read_at_all(file, at + 544, x, n, MPI_DOUBLE_PRECISION, IGNORED, ierr)
  call MPI_File_iread(file, x, n, MPI_DOUBLE_PRECISION, request, ierr)
  call MPI_Wait(request, IGNORED, ierr)
  call MPI_File_iread_at(file, at + 576, x, n, MPI_DOUBLE_PRECISION, request, ierr)
  call MPI_Wait(request, status, ierr)
  call MPI_File_iread_all(file, x, n, MPI_DOUBLE_PRECISION, request, ierr)
  call MPI_Wait(request, IGNORED, ierr)
  call MPI_File_iread_at_all(file, at + 608, x, n, MPI_DOUBLE_PRECISION, request, ierr)
  call MPI_Wait(request, IGNORED, ierr)
  call MPI_File_read_all_begin(file, x, n, MPI_DOUBLE_PRECISION, ierr)
  call MPI_File_read_all_end(file, x, IGNORED, ierr)
  call MPI_File_read_at_all_begin(file, at + 640, x, n, MPI_DOUBLE_PRECISION, ierr)
  call MPI_File_read_at_all_end(file, x, IGNORED, ierr)
  if (x(n) /= 1000 * rank + 10 + 3 / 16d0) call MPI_Abort(MPI_COMM_WORLD, 9, ierr)
  call MPI_File_close(file, ierr)

  ! A view with gaps: one number of each rank in turn, from byte 8 on.
  call MPI_Type_create_resized(MPI_DOUBLE_PRECISION, 0_MPI_ADDRESS_KIND, int(8 * ranks, MPI_ADDRESS_KIND), pattern, ierr)
  call MPI_Type_commit(pattern, ierr)
  call MPI_File_open(MPI_COMM_WORLD, 'view.dat', MPI_MODE_CREATE + MPI_MODE_RDWR, MPI_INFO_NULL, file, ierr)
  call MPI_File_set_view(file, int(8 + 8 * rank, MPI_OFFSET_KIND), MPI_DOUBLE_PRECISION, pattern, 'native', MPI_INFO_NULL, ierr)
  call fill()
  call MPI_File_write_at_all(file, 2_MPI_OFFSET_KIND, x, n, MPI_DOUBLE_PRECISION, IGNORED, ierr)
  call MPI_File_close(file, ierr)

  call MPI_File_open(MPI_COMM_WORLD, 'shared.dat', MPI_MODE_CREATE + MPI_MODE_RDWR, MPI_INFO_NULL, file, ierr)
  call fill()
  call MPI_File_write_shared(file, x, n, MPI_DOUBLE_PRECISION, IGNORED, ierr)
  call fill()
  call MPI_File_write_ordered(file, x, n, MPI_DOUBLE_PRECISION, IGNORED, ierr)
  call fill()
  call MPI_File_iwrite_shared(file, x, n, MPI_DOUBLE_PRECISION, request, ierr)
  call MPI_Wait(request, IGNORED, ierr)
  call fill()
  call MPI_File_write_ordered_begin(file, x, n, MPI_DOUBLE_PRECISION, ierr)
  call MPI_File_write_ordered_end(file, x, IGNORED, ierr)
  call MPI_File_seek_shared(file, int(32 * ranks, MPI_OFFSET_KIND), MPI_SEEK_SET, ierr)
  call MPI_File_read_ordered(file, x, n, MPI_DOUBLE_PRECISION, IGNORED, ierr)
  call MPI_File_seek_shared(file, int(32 * ranks, MPI_OFFSET_KIND), MPI_SEEK_SET, ierr)
  call MPI_File_read_ordered_begin(file, x, n, MPI_DOUBLE_PRECISION, ierr)
  call MPI_File_read_ordered_end(file, x, IGNORED, ierr)
  call MPI_File_read_shared(file, x, n, MPI_DOUBLE_PRECISION, IGNORED, ierr)
  call MPI_File_iread_shared(file, x, n, MPI_DOUBLE_PRECISION, request, ierr)
  call MPI_Wait(request, IGNORED, ierr)
  call MPI_File_close(file, ierr)
  call MPI_Finalize(ierr)

contains

  subroutine fill()
    integer :: i
    calls = calls + 1
    x = [(1000 * rank + calls + (i - 1) / 16d0, i = 1, n)]
  end subroutine
end program
