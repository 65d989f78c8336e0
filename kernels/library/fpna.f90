! Sums whose bits do not depend on the order of the additions, with and without MPI: the interface of fpna.h for Fortran 2018.
!
!     use fpna
!     heat = fpna_sum(temperature * volume, MPI_COMM_WORLD)            ! of the elements of all ranks, of any shape
!     energy = fpna_dot(u, v, comm, guarantee=FPNA_LAYOUT, mask=wet)
!     length = fpna_norm2(residual, comm)
!     call fpna_sum_fields(diagnostics, totals, comm)                  ! diagnostics(n, fields): totals(fields), one message
!
!     type(fpna_acc) :: sum                                            ! an exact sum, filled piece by piece
!     call fpna_acc_add(sum, tile)
!     call fpna_acc_allreduce(sum, comm)
!     total = fpna_acc_value(sum)
!
! | procedure                                       | result                                                              |
! |-------------------------------------------------|---------------------------------------------------------------------|
! | fpna_sum(x, comm, ...)                          | the sum of x over all ranks                                         |
! | fpna_dot(x, y, comm, ...)                       | the sum of x * y, of complex numbers of conjg(x) * y                |
! | fpna_norm2(x, comm, ...)                        | the root of the sum of abs(x)**2                                    |
! | fpna_sum_fields(x, totals, comm, fields_first)  | a sum for each index of the last dimension of x: x(n, fields),      |
! |                                                 | x(nx, ny, fields); with fields_first=.true. of the first dimension  |
! | fpna_acc_add(sum, x), _add_products(sum, x, y), | add to an accumulator of type(fpna_acc); add another one;           |
! | _merge(sum, other), _allreduce(sums, comm)      | make each of `sums` the sum of that of all ranks                    |
! | fpna_acc_value(sum), fpna_acc_value_single(sum) | its value, rounded once to real(8) or real(4)                       |
! | fpna_allreduce(x, comm, guarantee)              | x becomes its sum over the ranks, element by element: as MPI_SUM    |
! | fpna_minloc(x, numbers, comm, value, number)    | the smallest x of all ranks, and of the numbers that have it the    |
! | fpna_maxloc(x, numbers, comm, value, number)    | smallest; the largest x                                             |
! | fpna_scatter_add(x, cell, totals, comm)         | totals(c) = the exact sum of x(i) with cell(i) == c over all ranks  |
! | fpna_error()                                    | the sentence of the last call that failed                           |
!
! x: real or complex of kind 4 or 8, of any rank; a section that is not contiguous is copied. Accumulators take reals.
! comm: the integer of mpif.h and `use mpi`; with `use mpi_f08` write comm%mpi_val. Without MPI it is any integer.
!
! Optional arguments, by keyword:
!     guarantee   FPNA_EXACT (without it), FPNA_LAYOUT or FPNA_RUN: see fpna.h. The same on all ranks
!     mask        logical, of the shape of x (for fields: without the dimension of the fields): .false. leaves an element out
!     weights     real, shaped as the mask: factors of the elements; not of fpna_norm2
!     threads     of OpenMP; without it as many as OpenMP would take. No effect on bits
!     report      type(fpna_report), filled on all ranks: pass it on all or on none
!     ierr        0 or a code of fpna.h. Without it, an error stops the program with the sentence
!
! Calls are collective over `comm`, but for those of accumulators besides _allreduce. In the first 100 calls on a communicator,
! and with FPNA_CHECK=1 in the environment of all ranks in all calls, ranks compare what they pass: see fpna.h.
module fpna
  use, intrinsic :: iso_c_binding
  implicit none
  private
  public :: fpna_sum, fpna_dot, fpna_norm2, fpna_sum_fields, fpna_report, fpna_error
  public :: fpna_allreduce, fpna_minloc, fpna_maxloc, fpna_scatter_add
  public :: fpna_acc, fpna_acc_add, fpna_acc_add_products, fpna_acc_merge, fpna_acc_allreduce
  public :: fpna_acc_value, fpna_acc_value_single

  integer, parameter, public :: FPNA_RUN = 1, FPNA_LAYOUT = 2, FPNA_EXACT = 3
  integer, parameter, public :: FPNA_OK = 0, FPNA_ARGUMENT = 1, FPNA_MEMORY = 2, FPNA_MPI = 3
  integer, parameter, public :: FPNA_WORDS = 70

  ! What a sum met; the same on all ranks.
  type, bind(c) :: fpna_report
    integer(c_int) :: field = 0           ! the first with a NaN or an infinity, from 1; 0 without any
    integer(c_int) :: rank = -1           ! that has the first such element of this field; -1 without any
    integer(c_int64_t) :: number = 0      ! of this element in x, from 1, in the order of the array
    real(c_double) :: value = 0           ! of this element: a NaN or an infinity
    real(c_double) :: lost = 0            ! the largest difference from the sum without error, in units in its last place
    real(c_double) :: seconds = 0         ! of the whole call on the slowest rank
    real(c_double) :: seconds_waiting = 0 ! of these, in calls of the MPI library
  end type

  ! An exact sum; empty at first. Equal sums have equal words after every call, which may be written to a file.
  type, bind(c) :: fpna_acc
    integer(c_int64_t) :: words(FPNA_WORDS) = 0
  end type

  ! The arguments of a call, as fortran.cpp reads them.
  type, bind(c) :: call_t
    type(c_ptr) :: who
    integer(c_int) :: of
    character(c_char) :: letter
    integer(c_int) :: guarantee, comm
    integer(c_int64_t) :: n, fields, stride, field_stride
    type(c_ptr) :: x, y, total, weights, mask
    integer(c_int) :: threads
    type(c_ptr) :: report, refused
  end type

  integer, parameter :: OF_SUM = 0, OF_DOT = 1, OF_NORM = 2  ! of call.hpp

  interface fpna_sum
    module procedure sum_s, sum_d, sum_c, sum_z
  end interface
  interface fpna_dot
    module procedure dot_s, dot_d, dot_c, dot_z
  end interface
  interface fpna_norm2
    module procedure norm2_s, norm2_d, norm2_c, norm2_z
  end interface
  interface fpna_sum_fields
    module procedure fields_s, fields_d, fields_c, fields_z
  end interface
  interface fpna_allreduce
    module procedure allreduce_s, allreduce_d, allreduce_c, allreduce_z
  end interface
  interface fpna_minloc
    module procedure minloc_s, minloc_d
  end interface
  interface fpna_maxloc
    module procedure maxloc_s, maxloc_d
  end interface
  interface fpna_scatter_add
    module procedure scatter_s, scatter_d, scatter_default_s, scatter_default_d
  end interface
  interface fpna_acc_add
    module procedure acc_add_s, acc_add_d
  end interface
  interface fpna_acc_add_products
    module procedure acc_add_products_s, acc_add_products_d
  end interface

  interface
    integer(c_int) function fpna_fortran_call(arguments) bind(c)
      import :: c_int, call_t
      type(call_t), intent(in) :: arguments
    end function
    integer(c_int) function fpna_fortran_allreduce(sums, count, comm) bind(c)
      import :: c_int, c_int64_t, c_ptr
      type(c_ptr), value :: sums
      integer(c_int64_t), value :: count
      integer(c_int), value :: comm
    end function
    integer(c_int) function fpna_fortran_reduce(guarantee, comm, n, x, single) bind(c)
      import :: c_int, c_int64_t, c_ptr
      integer(c_int), value :: guarantee, comm, single
      integer(c_int64_t), value :: n
      type(c_ptr), value :: x
    end function
    integer(c_int) function fpna_fortran_locate_s(largest, comm, n, x, numbers, value, number, refused) bind(c)
      import :: c_int, c_int64_t, c_ptr, c_float
      integer(c_int), value :: largest, comm
      integer(c_int64_t), value :: n
      type(c_ptr), value :: x, numbers, refused
      real(c_float), intent(out) :: value
      integer(c_int64_t), intent(out) :: number
    end function
    integer(c_int) function fpna_fortran_locate_d(largest, comm, n, x, numbers, value, number, refused) bind(c)
      import :: c_int, c_int64_t, c_ptr, c_double
      integer(c_int), value :: largest, comm
      integer(c_int64_t), value :: n
      type(c_ptr), value :: x, numbers, refused
      real(c_double), intent(out) :: value
      integer(c_int64_t), intent(out) :: number
    end function
    integer(c_int) function fpna_fortran_scatter_s(comm, n, cell, x, cells, total, threads, refused) bind(c)
      import :: c_int, c_int64_t, c_ptr
      integer(c_int), value :: comm, threads
      integer(c_int64_t), value :: n, cells
      type(c_ptr), value :: cell, x, total, refused
    end function
    integer(c_int) function fpna_fortran_scatter_d(comm, n, cell, x, cells, total, threads, refused) bind(c)
      import :: c_int, c_int64_t, c_ptr
      integer(c_int), value :: comm, threads
      integer(c_int64_t), value :: n, cells
      type(c_ptr), value :: cell, x, total, refused
    end function
    integer(c_int64_t) function fpna_fortran_error(text) bind(c)
      import :: c_int64_t, c_ptr
      type(c_ptr), value :: text
    end function
    subroutine fpna_acc_merge(sum, other) bind(c)
      import :: fpna_acc
      type(fpna_acc), intent(inout) :: sum
      type(fpna_acc), intent(in) :: other
    end subroutine
    real(c_double) function fpna_acc_value(sum) bind(c, name='fpna_acc_value_d')
      import :: c_double, fpna_acc
      type(fpna_acc), intent(in) :: sum
    end function
    real(c_float) function fpna_acc_value_single(sum) bind(c, name='fpna_acc_value_s')
      import :: c_float, fpna_acc
      type(fpna_acc), intent(in) :: sum
    end function
    subroutine c_add_s(sum, n, x, stride) bind(c, name='fpna_acc_add_s')
      import :: c_ptr, c_size_t, c_ptrdiff_t, fpna_acc
      type(fpna_acc), intent(inout) :: sum
      integer(c_size_t), value :: n
      type(c_ptr), value :: x
      integer(c_ptrdiff_t), value :: stride
    end subroutine
    subroutine c_add_d(sum, n, x, stride) bind(c, name='fpna_acc_add_d')
      import :: c_ptr, c_size_t, c_ptrdiff_t, fpna_acc
      type(fpna_acc), intent(inout) :: sum
      integer(c_size_t), value :: n
      type(c_ptr), value :: x
      integer(c_ptrdiff_t), value :: stride
    end subroutine
    subroutine c_dot_s(sum, n, x, stride, y, stride_y) bind(c, name='fpna_acc_dot_s')
      import :: c_ptr, c_size_t, c_ptrdiff_t, fpna_acc
      type(fpna_acc), intent(inout) :: sum
      integer(c_size_t), value :: n
      type(c_ptr), value :: x, y
      integer(c_ptrdiff_t), value :: stride, stride_y
    end subroutine
    subroutine c_dot_d(sum, n, x, stride, y, stride_y) bind(c, name='fpna_acc_dot_d')
      import :: c_ptr, c_size_t, c_ptrdiff_t, fpna_acc
      type(fpna_acc), intent(inout) :: sum
      integer(c_size_t), value :: n
      type(c_ptr), value :: x, y
      integer(c_ptrdiff_t), value :: stride, stride_y
    end subroutine
  end interface

contains

  function fpna_error() result(sentence)
    character(:), allocatable, target :: sentence
    integer(c_int64_t) :: length
    length = fpna_fortran_error(c_null_ptr)
    allocate (character(length) :: sentence)
    if (length > 0) length = fpna_fortran_error(c_loc(sentence))
  end function

  function sum_s(x, comm, guarantee, mask, weights, threads, report, ierr) result(total)
    real(c_float), intent(in), contiguous :: x(..)
    integer, intent(in) :: comm
    integer, intent(in), optional :: guarantee, threads
    logical, intent(in), contiguous, optional :: mask(..)
    real(c_float), intent(in), contiguous, optional :: weights(..)
    type(fpna_report), intent(out), optional :: report
    integer, intent(out), optional :: ierr
    real(c_float), target :: total
    total = 0
    call carry_out('fpna_sum', OF_SUM, 's', x, total=c_loc(total), comm=comm, fields=-1, first=.false., &
                   guarantee=guarantee, mask=mask, weights=weights, threads=threads, report=report, ierr=ierr)
  end function

  function sum_d(x, comm, guarantee, mask, weights, threads, report, ierr) result(total)
    real(c_double), intent(in), contiguous :: x(..)
    integer, intent(in) :: comm
    integer, intent(in), optional :: guarantee, threads
    logical, intent(in), contiguous, optional :: mask(..)
    real(c_double), intent(in), contiguous, optional :: weights(..)
    type(fpna_report), intent(out), optional :: report
    integer, intent(out), optional :: ierr
    real(c_double), target :: total
    total = 0
    call carry_out('fpna_sum', OF_SUM, 'd', x, total=c_loc(total), comm=comm, fields=-1, first=.false., &
                   guarantee=guarantee, mask=mask, weights=weights, threads=threads, report=report, ierr=ierr)
  end function

  function sum_c(x, comm, guarantee, mask, weights, threads, report, ierr) result(total)
    complex(c_float), intent(in), contiguous :: x(..)
    integer, intent(in) :: comm
    integer, intent(in), optional :: guarantee, threads
    logical, intent(in), contiguous, optional :: mask(..)
    real(c_float), intent(in), contiguous, optional :: weights(..)
    type(fpna_report), intent(out), optional :: report
    integer, intent(out), optional :: ierr
    complex(c_float), target :: total
    total = 0
    call carry_out('fpna_sum', OF_SUM, 'c', x, total=c_loc(total), comm=comm, fields=-1, first=.false., &
                   guarantee=guarantee, mask=mask, weights=weights, threads=threads, report=report, ierr=ierr)
  end function

  function sum_z(x, comm, guarantee, mask, weights, threads, report, ierr) result(total)
    complex(c_double), intent(in), contiguous :: x(..)
    integer, intent(in) :: comm
    integer, intent(in), optional :: guarantee, threads
    logical, intent(in), contiguous, optional :: mask(..)
    real(c_double), intent(in), contiguous, optional :: weights(..)
    type(fpna_report), intent(out), optional :: report
    integer, intent(out), optional :: ierr
    complex(c_double), target :: total
    total = 0
    call carry_out('fpna_sum', OF_SUM, 'z', x, total=c_loc(total), comm=comm, fields=-1, first=.false., &
                   guarantee=guarantee, mask=mask, weights=weights, threads=threads, report=report, ierr=ierr)
  end function

  function dot_s(x, y, comm, guarantee, mask, weights, threads, report, ierr) result(total)
    real(c_float), intent(in), contiguous :: x(..), y(..)
    integer, intent(in) :: comm
    integer, intent(in), optional :: guarantee, threads
    logical, intent(in), contiguous, optional :: mask(..)
    real(c_float), intent(in), contiguous, optional :: weights(..)
    type(fpna_report), intent(out), optional :: report
    integer, intent(out), optional :: ierr
    real(c_float), target :: total
    total = 0
    call carry_out('fpna_dot', OF_DOT, 's', x, y, c_loc(total), comm, -1, .false., guarantee, mask, weights, threads, &
                   report, ierr)
  end function

  function dot_d(x, y, comm, guarantee, mask, weights, threads, report, ierr) result(total)
    real(c_double), intent(in), contiguous :: x(..), y(..)
    integer, intent(in) :: comm
    integer, intent(in), optional :: guarantee, threads
    logical, intent(in), contiguous, optional :: mask(..)
    real(c_double), intent(in), contiguous, optional :: weights(..)
    type(fpna_report), intent(out), optional :: report
    integer, intent(out), optional :: ierr
    real(c_double), target :: total
    total = 0
    call carry_out('fpna_dot', OF_DOT, 'd', x, y, c_loc(total), comm, -1, .false., guarantee, mask, weights, threads, &
                   report, ierr)
  end function

  function dot_c(x, y, comm, guarantee, mask, weights, threads, report, ierr) result(total)
    complex(c_float), intent(in), contiguous :: x(..), y(..)
    integer, intent(in) :: comm
    integer, intent(in), optional :: guarantee, threads
    logical, intent(in), contiguous, optional :: mask(..)
    real(c_float), intent(in), contiguous, optional :: weights(..)
    type(fpna_report), intent(out), optional :: report
    integer, intent(out), optional :: ierr
    complex(c_float), target :: total
    total = 0
    call carry_out('fpna_dot', OF_DOT, 'c', x, y, c_loc(total), comm, -1, .false., guarantee, mask, weights, threads, &
                   report, ierr)
  end function

  function dot_z(x, y, comm, guarantee, mask, weights, threads, report, ierr) result(total)
    complex(c_double), intent(in), contiguous :: x(..), y(..)
    integer, intent(in) :: comm
    integer, intent(in), optional :: guarantee, threads
    logical, intent(in), contiguous, optional :: mask(..)
    real(c_double), intent(in), contiguous, optional :: weights(..)
    type(fpna_report), intent(out), optional :: report
    integer, intent(out), optional :: ierr
    complex(c_double), target :: total
    total = 0
    call carry_out('fpna_dot', OF_DOT, 'z', x, y, c_loc(total), comm, -1, .false., guarantee, mask, weights, threads, &
                   report, ierr)
  end function

  function norm2_s(x, comm, guarantee, mask, threads, report, ierr) result(total)
    real(c_float), intent(in), contiguous :: x(..)
    integer, intent(in) :: comm
    integer, intent(in), optional :: guarantee, threads
    logical, intent(in), contiguous, optional :: mask(..)
    type(fpna_report), intent(out), optional :: report
    integer, intent(out), optional :: ierr
    real(c_float), target :: total
    total = 0
    call carry_out('fpna_norm2', OF_NORM, 's', x, total=c_loc(total), comm=comm, fields=-1, first=.false., &
                   guarantee=guarantee, mask=mask, threads=threads, report=report, ierr=ierr)
  end function

  function norm2_d(x, comm, guarantee, mask, threads, report, ierr) result(total)
    real(c_double), intent(in), contiguous :: x(..)
    integer, intent(in) :: comm
    integer, intent(in), optional :: guarantee, threads
    logical, intent(in), contiguous, optional :: mask(..)
    type(fpna_report), intent(out), optional :: report
    integer, intent(out), optional :: ierr
    real(c_double), target :: total
    total = 0
    call carry_out('fpna_norm2', OF_NORM, 'd', x, total=c_loc(total), comm=comm, fields=-1, first=.false., &
                   guarantee=guarantee, mask=mask, threads=threads, report=report, ierr=ierr)
  end function

  function norm2_c(x, comm, guarantee, mask, threads, report, ierr) result(total)
    complex(c_float), intent(in), contiguous :: x(..)
    integer, intent(in) :: comm
    integer, intent(in), optional :: guarantee, threads
    logical, intent(in), contiguous, optional :: mask(..)
    type(fpna_report), intent(out), optional :: report
    integer, intent(out), optional :: ierr
    real(c_float), target :: total
    total = 0
    call carry_out('fpna_norm2', OF_NORM, 'c', x, total=c_loc(total), comm=comm, fields=-1, first=.false., &
                   guarantee=guarantee, mask=mask, threads=threads, report=report, ierr=ierr)
  end function

  function norm2_z(x, comm, guarantee, mask, threads, report, ierr) result(total)
    complex(c_double), intent(in), contiguous :: x(..)
    integer, intent(in) :: comm
    integer, intent(in), optional :: guarantee, threads
    logical, intent(in), contiguous, optional :: mask(..)
    type(fpna_report), intent(out), optional :: report
    integer, intent(out), optional :: ierr
    real(c_double), target :: total
    total = 0
    call carry_out('fpna_norm2', OF_NORM, 'z', x, total=c_loc(total), comm=comm, fields=-1, first=.false., &
                   guarantee=guarantee, mask=mask, threads=threads, report=report, ierr=ierr)
  end function

  subroutine fields_s(x, totals, comm, fields_first, guarantee, mask, weights, threads, report, ierr)
    real(c_float), intent(in), contiguous :: x(..)
    real(c_float), intent(inout), contiguous, target :: totals(:)
    logical, intent(in), optional :: fields_first
    integer, intent(in) :: comm
    integer, intent(in), optional :: guarantee, threads
    logical, intent(in), contiguous, optional :: mask(..)
    real(c_float), intent(in), contiguous, optional :: weights(..)
    type(fpna_report), intent(out), optional :: report
    integer, intent(out), optional :: ierr
    logical :: first
    first = .false.
    if (present(fields_first)) first = fields_first
    call carry_out('fpna_sum_fields', OF_SUM, 's', x, total=c_loc(totals), comm=comm, fields=size(totals), first=first, &
                   guarantee=guarantee, mask=mask, weights=weights, threads=threads, report=report, ierr=ierr)
  end subroutine

  subroutine fields_d(x, totals, comm, fields_first, guarantee, mask, weights, threads, report, ierr)
    real(c_double), intent(in), contiguous :: x(..)
    real(c_double), intent(inout), contiguous, target :: totals(:)
    logical, intent(in), optional :: fields_first
    integer, intent(in) :: comm
    integer, intent(in), optional :: guarantee, threads
    logical, intent(in), contiguous, optional :: mask(..)
    real(c_double), intent(in), contiguous, optional :: weights(..)
    type(fpna_report), intent(out), optional :: report
    integer, intent(out), optional :: ierr
    logical :: first
    first = .false.
    if (present(fields_first)) first = fields_first
    call carry_out('fpna_sum_fields', OF_SUM, 'd', x, total=c_loc(totals), comm=comm, fields=size(totals), first=first, &
                   guarantee=guarantee, mask=mask, weights=weights, threads=threads, report=report, ierr=ierr)
  end subroutine

  subroutine fields_c(x, totals, comm, fields_first, guarantee, mask, weights, threads, report, ierr)
    complex(c_float), intent(in), contiguous :: x(..)
    complex(c_float), intent(inout), contiguous, target :: totals(:)
    logical, intent(in), optional :: fields_first
    integer, intent(in) :: comm
    integer, intent(in), optional :: guarantee, threads
    logical, intent(in), contiguous, optional :: mask(..)
    real(c_float), intent(in), contiguous, optional :: weights(..)
    type(fpna_report), intent(out), optional :: report
    integer, intent(out), optional :: ierr
    logical :: first
    first = .false.
    if (present(fields_first)) first = fields_first
    call carry_out('fpna_sum_fields', OF_SUM, 'c', x, total=c_loc(totals), comm=comm, fields=size(totals), first=first, &
                   guarantee=guarantee, mask=mask, weights=weights, threads=threads, report=report, ierr=ierr)
  end subroutine

  subroutine fields_z(x, totals, comm, fields_first, guarantee, mask, weights, threads, report, ierr)
    complex(c_double), intent(in), contiguous :: x(..)
    complex(c_double), intent(inout), contiguous, target :: totals(:)
    logical, intent(in), optional :: fields_first
    integer, intent(in) :: comm
    integer, intent(in), optional :: guarantee, threads
    logical, intent(in), contiguous, optional :: mask(..)
    real(c_double), intent(in), contiguous, optional :: weights(..)
    type(fpna_report), intent(out), optional :: report
    integer, intent(out), optional :: ierr
    logical :: first
    first = .false.
    if (present(fields_first)) first = fields_first
    call carry_out('fpna_sum_fields', OF_SUM, 'z', x, total=c_loc(totals), comm=comm, fields=size(totals), first=first, &
                   guarantee=guarantee, mask=mask, weights=weights, threads=threads, report=report, ierr=ierr)
  end subroutine

  subroutine allreduce_s(x, comm, guarantee, ierr)
    real(c_float), intent(inout), contiguous, target :: x(..)
    integer, intent(in) :: comm
    integer, intent(in), optional :: guarantee
    integer, intent(out), optional :: ierr
    call finish(fpna_fortran_reduce(chosen(guarantee), comm, size(x, kind=c_int64_t), c_loc(x), 1_c_int), ierr)
  end subroutine

  subroutine allreduce_d(x, comm, guarantee, ierr)
    real(c_double), intent(inout), contiguous, target :: x(..)
    integer, intent(in) :: comm
    integer, intent(in), optional :: guarantee
    integer, intent(out), optional :: ierr
    call finish(fpna_fortran_reduce(chosen(guarantee), comm, size(x, kind=c_int64_t), c_loc(x), 0_c_int), ierr)
  end subroutine

  subroutine allreduce_c(x, comm, guarantee, ierr)
    complex(c_float), intent(inout), contiguous, target :: x(..)
    integer, intent(in) :: comm
    integer, intent(in), optional :: guarantee
    integer, intent(out), optional :: ierr
    call finish(fpna_fortran_reduce(chosen(guarantee), comm, 2 * size(x, kind=c_int64_t), c_loc(x), 1_c_int), ierr)
  end subroutine

  subroutine allreduce_z(x, comm, guarantee, ierr)
    complex(c_double), intent(inout), contiguous, target :: x(..)
    integer, intent(in) :: comm
    integer, intent(in), optional :: guarantee
    integer, intent(out), optional :: ierr
    call finish(fpna_fortran_reduce(chosen(guarantee), comm, 2 * size(x, kind=c_int64_t), c_loc(x), 0_c_int), ierr)
  end subroutine

  subroutine minloc_s(x, numbers, comm, value, number, ierr)
    real(c_float), intent(in), contiguous, target :: x(..)
    integer(c_int64_t), intent(in), contiguous, target :: numbers(..)
    integer, intent(in) :: comm
    real(c_float), intent(out) :: value
    integer(c_int64_t), intent(out) :: number
    integer, intent(out), optional :: ierr
    character(:, c_char), allocatable, target :: refused
    refused = trouble('numbers', shape(numbers), shape(x))
    call finish(fpna_fortran_locate_s(0_c_int, comm, size(x, kind=c_int64_t), c_loc(x), c_loc(numbers), value, number, &
                                      c_loc(refused)), ierr)
  end subroutine

  subroutine minloc_d(x, numbers, comm, value, number, ierr)
    real(c_double), intent(in), contiguous, target :: x(..)
    integer(c_int64_t), intent(in), contiguous, target :: numbers(..)
    integer, intent(in) :: comm
    real(c_double), intent(out) :: value
    integer(c_int64_t), intent(out) :: number
    integer, intent(out), optional :: ierr
    character(:, c_char), allocatable, target :: refused
    refused = trouble('numbers', shape(numbers), shape(x))
    call finish(fpna_fortran_locate_d(0_c_int, comm, size(x, kind=c_int64_t), c_loc(x), c_loc(numbers), value, number, &
                                      c_loc(refused)), ierr)
  end subroutine

  subroutine maxloc_s(x, numbers, comm, value, number, ierr)
    real(c_float), intent(in), contiguous, target :: x(..)
    integer(c_int64_t), intent(in), contiguous, target :: numbers(..)
    integer, intent(in) :: comm
    real(c_float), intent(out) :: value
    integer(c_int64_t), intent(out) :: number
    integer, intent(out), optional :: ierr
    character(:, c_char), allocatable, target :: refused
    refused = trouble('numbers', shape(numbers), shape(x))
    call finish(fpna_fortran_locate_s(1_c_int, comm, size(x, kind=c_int64_t), c_loc(x), c_loc(numbers), value, number, &
                                      c_loc(refused)), ierr)
  end subroutine

  subroutine maxloc_d(x, numbers, comm, value, number, ierr)
    real(c_double), intent(in), contiguous, target :: x(..)
    integer(c_int64_t), intent(in), contiguous, target :: numbers(..)
    integer, intent(in) :: comm
    real(c_double), intent(out) :: value
    integer(c_int64_t), intent(out) :: number
    integer, intent(out), optional :: ierr
    character(:, c_char), allocatable, target :: refused
    refused = trouble('numbers', shape(numbers), shape(x))
    call finish(fpna_fortran_locate_d(1_c_int, comm, size(x, kind=c_int64_t), c_loc(x), c_loc(numbers), value, number, &
                                      c_loc(refused)), ierr)
  end subroutine

  ! `cell`: from 1 to size(totals).
  subroutine scatter_s(x, cell, totals, comm, threads, ierr)
    real(c_float), intent(in), contiguous, target :: x(:)
    integer(c_int64_t), intent(in), contiguous, target :: cell(:)
    real(c_float), intent(out), contiguous, target :: totals(:)
    integer, intent(in) :: comm
    integer, intent(in), optional :: threads
    integer, intent(out), optional :: ierr
    integer :: team
    character(:, c_char), allocatable, target :: refused
    refused = trouble('cell', shape(cell), shape(x))
    team = 0
    if (present(threads)) team = threads
    call finish(fpna_fortran_scatter_s(comm, size(x, kind=c_int64_t), c_loc(cell), c_loc(x), &
                                       size(totals, kind=c_int64_t), c_loc(totals), team, c_loc(refused)), ierr)
  end subroutine

  subroutine scatter_default_s(x, cell, totals, comm, threads, ierr)
    real(c_float), intent(in), contiguous :: x(:)
    integer, intent(in) :: cell(:)
    real(c_float), intent(out), contiguous :: totals(:)
    integer, intent(in) :: comm
    integer, intent(in), optional :: threads
    integer, intent(out), optional :: ierr
    call scatter_s(x, int(cell, c_int64_t), totals, comm, threads, ierr)
  end subroutine

  ! `cell`: from 1 to size(totals).
  subroutine scatter_d(x, cell, totals, comm, threads, ierr)
    real(c_double), intent(in), contiguous, target :: x(:)
    integer(c_int64_t), intent(in), contiguous, target :: cell(:)
    real(c_double), intent(out), contiguous, target :: totals(:)
    integer, intent(in) :: comm
    integer, intent(in), optional :: threads
    integer, intent(out), optional :: ierr
    integer :: team
    character(:, c_char), allocatable, target :: refused
    refused = trouble('cell', shape(cell), shape(x))
    team = 0
    if (present(threads)) team = threads
    call finish(fpna_fortran_scatter_d(comm, size(x, kind=c_int64_t), c_loc(cell), c_loc(x), &
                                       size(totals, kind=c_int64_t), c_loc(totals), team, c_loc(refused)), ierr)
  end subroutine

  subroutine scatter_default_d(x, cell, totals, comm, threads, ierr)
    real(c_double), intent(in), contiguous :: x(:)
    integer, intent(in) :: cell(:)
    real(c_double), intent(out), contiguous :: totals(:)
    integer, intent(in) :: comm
    integer, intent(in), optional :: threads
    integer, intent(out), optional :: ierr
    call scatter_d(x, int(cell, c_int64_t), totals, comm, threads, ierr)
  end subroutine

  pure integer function chosen(guarantee)
    integer, intent(in), optional :: guarantee
    chosen = FPNA_EXACT
    if (present(guarantee)) chosen = guarantee
  end function

  ! All sums of elements. `fields`: negative for one total of all elements; otherwise how many totals there are, for the
  ! indices of the first or the last dimension.
  subroutine carry_out(who, of, letter, x, y, total, comm, fields, first, guarantee, mask, weights, threads, report, ierr)
    character(*), intent(in) :: who
    integer, intent(in) :: of, comm, fields
    character(1), intent(in) :: letter
    type(*), intent(in), contiguous, target :: x(..)
    type(*), intent(in), contiguous, optional, target :: y(..)
    type(c_ptr), intent(in) :: total
    logical, intent(in) :: first
    integer, intent(in), optional :: guarantee, threads
    logical, intent(in), contiguous, optional, target :: mask(..)
    type(*), intent(in), contiguous, optional, target :: weights(..)
    type(fpna_report), intent(out), optional, target :: report
    integer, intent(out), optional :: ierr
    type(call_t) :: call
    character(:, c_char), allocatable, target :: name, refused
    integer, allocatable :: whole(:), each(:)
    integer :: code

    whole = shape(x)
    each = whole
    refused = ''
    call%n = size(x, kind=c_int64_t)
    if (fields >= 0) then
      if (first) then
        each = whole(2:)
        code = whole(1)
      else
        each = whole(:size(whole) - 1)
        code = whole(size(whole))
      end if
      if (code /= fields) refused = 'x has ' // shown([code]) // ' fields, and totals has ' // shown([fields]) // ' elements'
      call%n = product(int(each, c_int64_t))
    end if
    call%fields = max(1, fields)
    if (fields == 0) call%fields = 0
    call%stride = 1
    call%field_stride = call%n
    if (first) then
      call%stride = fields
      call%field_stride = 1
    end if
    if (present(y)) then
      if (differ(whole, shape(y))) refused = unlike('y', shape(y), whole)
    end if
    if (present(mask)) then
      if (differ(each, shape(mask))) refused = unlike('mask', shape(mask), each)
    end if
    if (present(weights)) then
      if (differ(each, shape(weights))) refused = unlike('weights', shape(weights), each)
    end if
    if (refused /= '') call%n = 0

    name = who // c_null_char
    refused = refused // c_null_char
    call%who = c_loc(name)
    call%refused = c_loc(refused)
    call%of = of
    call%letter = letter
    call%comm = comm
    call%total = total
    call%x = c_loc(x)
    call%y = c_null_ptr
    call%mask = c_null_ptr
    call%weights = c_null_ptr
    call%report = c_null_ptr
    if (present(y)) call%y = c_loc(y)
    if (present(mask)) call%mask = c_loc(mask)
    if (present(weights)) call%weights = c_loc(weights)
    if (present(report)) call%report = c_loc(report)
    call%guarantee = chosen(guarantee)
    call%threads = 0
    if (present(threads)) call%threads = threads
    call finish(fpna_fortran_call(call), ierr)
  end subroutine

  subroutine finish(code, ierr)
    integer(c_int), intent(in) :: code
    integer, intent(out), optional :: ierr
    if (present(ierr)) then
      ierr = code
    else if (code /= FPNA_OK) then
      error stop fpna_error()
    end if
  end subroutine

  pure logical function differ(a, b)
    integer, intent(in) :: a(:), b(:)
    differ = size(a) /= size(b)
    if (.not. differ) differ = any(a /= b)
  end function

  ! What is wrong with a shape, as a string of C; empty if nothing is.
  pure function trouble(what, its, expected) result(text)
    character(*), intent(in) :: what
    integer, intent(in) :: its(:), expected(:)
    character(:), allocatable :: text
    text = c_null_char
    if (differ(its, expected)) text = unlike(what, its, expected) // c_null_char
  end function

  pure function unlike(what, its, expected) result(text)
    character(*), intent(in) :: what
    integer, intent(in) :: its(:), expected(:)
    character(:), allocatable :: text
    text = what // ' has the shape (' // shown(its) // '), expected (' // shown(expected) // ')'
  end function

  pure function shown(numbers) result(text)
    integer, intent(in) :: numbers(:)
    character(:), allocatable :: text
    character(12) :: one
    integer :: k
    text = ''
    do k = 1, size(numbers)
      write (one, '(i0)') numbers(k)
      if (k > 1) text = text // ', '
      text = text // trim(one)
    end do
  end function

  subroutine fpna_acc_allreduce(sums, comm, ierr)
    type(fpna_acc), intent(inout), contiguous, target :: sums(..)
    integer, intent(in) :: comm
    integer, intent(out), optional :: ierr
    call finish(fpna_fortran_allreduce(c_loc(sums), size(sums, kind=c_int64_t), comm), ierr)
  end subroutine

  subroutine acc_add_s(sum, x)
    type(fpna_acc), intent(inout) :: sum
    real(c_float), intent(in), contiguous, target :: x(..)
    call c_add_s(sum, size(x, kind=c_size_t), c_loc(x), 1_c_ptrdiff_t)
  end subroutine

  subroutine acc_add_products_s(sum, x, y)
    type(fpna_acc), intent(inout) :: sum
    real(c_float), intent(in), contiguous, target :: x(..), y(..)
    if (differ(shape(x), shape(y))) error stop 'fpna_acc_add_products: ' // unlike('y', shape(y), shape(x))
    call c_dot_s(sum, size(x, kind=c_size_t), c_loc(x), 1_c_ptrdiff_t, c_loc(y), 1_c_ptrdiff_t)
  end subroutine

  subroutine acc_add_d(sum, x)
    type(fpna_acc), intent(inout) :: sum
    real(c_double), intent(in), contiguous, target :: x(..)
    call c_add_d(sum, size(x, kind=c_size_t), c_loc(x), 1_c_ptrdiff_t)
  end subroutine

  subroutine acc_add_products_d(sum, x, y)
    type(fpna_acc), intent(inout) :: sum
    real(c_double), intent(in), contiguous, target :: x(..), y(..)
    if (differ(shape(x), shape(y))) error stop 'fpna_acc_add_products: ' // unlike('y', shape(y), shape(x))
    call c_dot_d(sum, size(x, kind=c_size_t), c_loc(x), 1_c_ptrdiff_t, c_loc(y), 1_c_ptrdiff_t)
  end subroutine
end module
