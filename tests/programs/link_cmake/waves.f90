program waves
  implicit none
  real, allocatable :: wave(:)
  integer :: i
  do i = 1, 100
    allocate(wave(i * 100))
    wave = sin(real(i))
    deallocate(wave)
  end do
  allocate(wave(3))
  wave = [1.0, 2.0, 3.0]
  if (abs(sum(wave) - 6.0) > 1e-6) stop 1
  print '(a)', 'done'
end program waves
