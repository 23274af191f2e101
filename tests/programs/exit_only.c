// A program that ends at once with status 3 and allocates nothing. Link it with -nostdlib. With -DGO it carries the
// note of the Go compiler.

#ifdef GO
__asm__(
    ".section .note.go.buildid,\"a\",@note\n"
    ".long 3, 4, 4\n"
    ".asciz \"Go\"\n"
    ".balign 4\n"
    ".ascii \"abcd\"\n"
    ".previous\n");
#endif

void _start(void) {
#if defined(__x86_64__)
  __asm__ volatile("movl $60, %eax\n movl $3, %edi\n syscall");
#else
  __asm__ volatile("mov x8, #93\n mov x0, #3\n svc #0");
#endif
}
