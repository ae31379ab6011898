r"""A coverage-guided fuzzer of both ends of each stream: what they hear from one that has the keys.

Each end reads it, or refuses it, and holds nothing for peers that have gone. An input is a whole
conversation, and takes some ten times as long as one of `fuzz_decoders.py`:

python tests/fuzz/fuzz_ends.py -runs=1000000 -max_len=512 -len_control=0 \
    -rss_limit_mb=4096 CORPUS_FOLDER
"""

from fuzzing import fuzz, instrumented

with instrumented():
    import ends

if __name__ == "__main__":
    fuzz(ends.readers())
