# Runs git: makes a repository of many commits, packs it with threads, checks, clones and reads it.
commits=25; files=120; [ "$SIZE" = long ] && commits=400 && files=1500
export HOME=$PWD GIT_CONFIG_NOSYSTEM=1
git init -q -b main r; cd r
git config gc.auto 0; git config pack.threads 3; git config maintenance.auto false
"$PYTHON" - $commits $files <<'PYTHON' | git fast-import --quiet
import random, sys
commits, files = map(int, sys.argv[1:])
source, out = random.Random(11), sys.stdout
words = [f"word{n}" for n in range(400)]
text = {f"d{n % 17}/f{n}.txt": [" ".join(source.choices(words, k=9)) for _ in range(source.randrange(5, 120))] for n in range(files)}
for number in range(commits):
    changed = list(text) if number == 0 else source.sample(list(text), max(1, files // 20))
    out.write(f"commit refs/heads/main\ncommitter a <a@b> {1577836800 + number} +0000\ndata 3\nc{number % 10}\n\n")
    for name in changed:
        for _ in range(3):
            text[name][source.randrange(len(text[name]))] = " ".join(source.choices(words, k=9))
        body = "\n".join(text[name]) + "\n"
        out.write(f"M 100644 inline {name}\ndata {len(body)}\n{body}\n")
PYTHON
echo "import: $?"; git reset -q --hard
git gc --aggressive --prune=now --quiet; echo "gc: $?"
git fsck --full --strict 2>&1; echo "fsck: $?"
git rev-list --objects --all | sort | cksum
git count-objects -v | grep -E '^(count|in-pack|packs|garbage)'
git -c pack.threads=1 repack -q -adfF --depth=50 --window=50; cksum <"$(ls .git/objects/pack/*.pack)"
git repack -q -ad --write-bitmap-index; git commit-graph write --reachable --no-progress; git multi-pack-index write --no-progress
git log --stat -p --reverse | cksum; git log --graph --oneline | cksum
git blame -s d1/f1.txt | cksum; git grep -c word7 | cksum; git shortlog -s HEAD; git diff --stat HEAD~5 | tail -1
cd ..; git clone -q --no-local r copy 2>/dev/null; git -C copy fsck --full 2>&1; git -C copy rev-parse HEAD; git -C r archive HEAD | cksum
