"""Any malloc, judged from outside: by its answers, under a fuzzer, under threads, under whole programs."""
