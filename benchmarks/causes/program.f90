! As program.c, in Fortran: program KIND EPS N STEPS FIELDS SEED
program drawn
  use mpi
  implicit none
  integer :: code, rank, ranks, n, steps, fields, first, past, step, f, i, before, behind, g
  double precision :: eps, phase, mean, strength(1), left(1), right(1), big, s, held
  double precision, allocatable :: u(:), v(:), part(:), total(:), last(:), whole(:)
  integer, allocatable :: counts(:), places(:)
  character(len=32) :: kind, word
  call get_command_argument(1, kind)
  call get_command_argument(2, word); read (word, *) eps
  call get_command_argument(3, word); read (word, *) n
  call get_command_argument(4, word); read (word, *) steps
  call get_command_argument(5, word); read (word, *) fields
  call get_command_argument(6, word); read (word, *) phase
  call mpi_init(code)
  call mpi_comm_rank(mpi_comm_world, rank, code)
  call mpi_comm_size(mpi_comm_world, ranks, code)
  first = int(int(rank, 8)*n/ranks)
  past = int(int(rank + 1, 8)*n/ranks)
  before = merge(rank - 1, mpi_proc_null, rank > 0)
  behind = merge(rank + 1, mpi_proc_null, rank < ranks - 1)
  allocate (u(first:past - 1), v(first:past - 1), part(fields), total(fields), last(fields), counts(ranks), places(ranks))
  last = 0
  do g = first, past - 1
    u(g) = term(g)
    if (kind == 'local-index') u(g) = u(g) + eps*(term(g - first) - u(g))
    if (kind == 'float-index') then
      held = real(67108864 + first, 4) + real(g - first, 4)
      u(g) = u(g) + eps*(held - dble(67108864 + g))
    end if
    if (kind == 'chaos') u(g) = 0.2d0 + 0.2d0*u(g)
  end do
  strength = 0.1d0
  if (kind == 'wrong-root') strength = 0.1d0*(1 + eps*rank)
  call mpi_bcast(strength, 1, mpi_double_precision, merge(ranks - 1, 0, kind == 'wrong-root'), mpi_comm_world, code)
  big = merge(1d8, 0d0, kind == 'cancellation')
  do step = 0, steps - 1
    left = u(first); right = u(past - 1)
    call mpi_sendrecv(u(past - 1:past - 1), 1, mpi_double_precision, behind, 1, left, 1, mpi_double_precision, before, 1, &
                      mpi_comm_world, mpi_status_ignore, code)
    call mpi_sendrecv(u(first:first), 1, mpi_double_precision, before, 2, right, 1, mpi_double_precision, behind, 2, &
                      mpi_comm_world, mpi_status_ignore, code)
    if (kind == 'forgotten-halo' .and. mod(step, 3) == 1) then
      left = left + eps*(u(first) - left)
      right = right + eps*(u(past - 1) - right)
    end if
    v(first) = u(first) + strength(1)*(left(1) - 2*u(first) + u(first + 1))
    v(past - 1) = u(past - 1) + strength(1)*(u(past - 2) - 2*u(past - 1) + right(1))
    do g = first + 1, past - 2
      v(g) = u(g) + strength(1)*(u(g - 1) - 2*u(g) + u(g + 1))
    end do
    u = v
    do f = 1, fields
      s = 0
      do g = first, past - 1
        s = s + u(g)*(1 + 0.5d0*cos(0.11d0*g*f))*share(g) + merge(big, -big, mod(g, 2) == 1)
      end do
      part(f) = s
    end do
    if (kind == 'stale-buffer' .and. ranks > 2 .and. rank == ranks - 1 .and. step > 0) part = part + eps*(last - part)
    last = part
    call mpi_allreduce(part, total, fields, mpi_double_precision, mpi_sum, mpi_comm_world, code)
    mean = total(1)/n
    if (kind == 'chaos') then
      v = 0.9d0*u + 0.1d0*mod(mean, 1d0)
      u = 3.9d0*v*(1 - v)
    else
      u = u*(1 - 1d-3*mean/(1 + abs(mean)))
    end if
  end do
  if (rank == 0) print '(es25.17)', total(1)
  do i = 1, ranks
    places(i) = int(int(i - 1, 8)*n/ranks)
    counts(i) = int(int(i, 8)*n/ranks) - places(i)
  end do
  allocate (whole(n))
  if (phase > 0.5d0) call mpi_gatherv(u, past - first, mpi_double_precision, whole, counts, places, mpi_double_precision, 0, &
                                      mpi_comm_world, code)
  call mpi_finalize(code)
contains
  double precision function term(g)
    integer, intent(in) :: g
    term = sin(0.37d0*g + phase) + 1.5d0
  end function
  double precision function share(g)
    integer, intent(in) :: g
    share = 1
    if (kind == 'integer-division' .and. g >= ranks*(n/ranks)) share = 1 - eps
    if (kind == 'off-by-one' .and. g == past - 1 .and. rank < ranks - 1) share = 1 - eps
    if (kind == 'doubled' .and. g == first .and. rank > 0) share = 1 + eps
    if (kind == 'lost' .and. g == first .and. rank == 1) share = 1 - eps
  end function
end program
