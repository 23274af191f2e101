# Runs CPython's own regression tests; prints the outcome of each test case.
# A case that fails runs once more, as some have deadlines. A test file that a signal ends is always printed.
if [ "$SIZE" = long ]; then
  set -- asyncio concurrent_futures multiprocessing_fork signal array ast atexit base64 bigmem bisect bufio builtin \
    bytes bz2 call cmath codecs codeop collections compile context contextlib copy coroutines csv ctypes dataclasses \
    datetime decimal deque descr dict difflib dis doctest email embed enum exceptions extcall faulthandler fileio float \
    fork1 format fractions frame fstring functools gc generators genericpath glob grammar gzip hash hashlib heapq hmac \
    httplib import inspect int io isinstance itertools json linecache list logging long lzma mailbox marshal math \
    memoryio memoryview metaclass minidom mmap operator ordered_dict os patma pathlib pickle pickletools pkgutil poll \
    popen posix posixpath pprint property pty pulldom pyexpat queue random range raise re regrtest repl resource richcmp \
    runpy sax sched scope select selectors set shelve shutil slice smtplib sort statistics strftime string struct \
    structseq subprocess super symtable syntax sys sys_settrace tabnanny tarfile tempfile textwrap thread \
    threadedtempfile threading threading_local threadsignals timeit trace traceback tracemalloc tuple types typing \
    unicode_file unicodedata unittest unpack userdict userlist uuid wait3 wait4 warnings weakref weakset wsgiref \
    xml_etree xml_etree_c xmlrpc yield_from zipapp zipfile zipimport zlib zoneinfo
else
  set -- atexit bytes deque dict fork1 gc mmap set struct thread threadsignals weakset
fi
export PYTHONMALLOC=malloc PYTHONHASHSEED=0
/usr/bin/python3 -m test -j2 -w --timeout 300 -u all,-network,-urlfetch,-largefile,-gui,-audio \
  --junit-xml "$PWD/results.xml" $(printf 'test_%s ' "$@") >log 2>&1
echo "exit status $?"
grep -oE 'test_[a-z0-9_]+ (crashed|timed out).*' log | sort
/usr/bin/python3 - <<'PYTHON'
import collections
import xml.etree.ElementTree as tree

ended = collections.defaultdict(list)
for case in tree.parse("results.xml").iter("testcase"):
    tags = {child.tag for child in case} & {"error", "failure", "skipped"}
    ended[case.get("name")].append(min(tags, default="passed"))
for name, ways in sorted(ended.items()):
    print(name, "passed" if "passed" in ways else ways[-1])
PYTHON
