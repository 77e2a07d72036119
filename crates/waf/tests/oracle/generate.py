#!/usr/bin/env python3
"""Records what libmodsecurity 3 makes of generated inputs: the files *.tsv beside this one.

    ./generate.py                     records all files anew; needs g++ and libmodsecurity-dev
    ./generate.py KIND COUNT SEED     prints further cases of one kind, for the variables WAF_*_CASES of
                                      the tests (`cargo test -p tollgate-waf`)
"""

import random
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent

TRANSFORMATIONS = """base64Decode base64DecodeExt base64Encode cmdLine compressWhitespace cssDecode escapeSeqDecode
hexDecode hexEncode htmlEntityDecode jsDecode length lowercase md5 normalizePath normalizePathWin parityEven7bit
parityOdd7bit parityZero7bit removeComments removeCommentsChar removeNulls removeWhitespace replaceComments
replaceNulls sha1 sqlHexDecode trim trimLeft trimRight uppercase urlDecode urlDecodeUni urlEncode
utf8toUnicode""".split()

VALUES = rb"""% + & # ; x X u U \ / * - < > ! . ' " ^ , ( = a f F 0 1 9 7 4 g %u00 %uff &#x &# &lt &quot; &AMP; &nbsp
\u00 \uFf \x4 .. /./ /../ 0x 0X41 -- /* */ <!-- --> YWJj YQ== QUJD foo bar \b \00 \377 \777 \n %41 %4 %zz
99999999999999999999""".split() + [b" ", b"\t", b"\n", b"\r", b"\0", b"\xa0", b"\xc2", b"\xc3\xa9", b"\xe2\x82\xac",
    b"\xf0\x9f\x98\x80", b"\xed\xa0\x80", b"\xc0\x80", b"\xe0\x80\xaf", b"\xf5\x80\x80\x80", b"\xf7\xbf\xbf\xbf", b"\xc3",
    b"\xe2\x82"]
PATHS = [b"/", b".", b"..", b"a", b"b.", b"\\", b"//"]
BASE64 = [b"YWJj", b"A", b"9", b"=", b"b", b" ", b"\n", b"\r\n", b"+", b"/", b"-", b"_", b"\0", b"!", b"Zm9v"]

SQL = rb"""' " ` ( ) -- # /* */ /**/ /*! /*!50000 ; , = <> != || && + - * / % ^ ~ ! . : :: := ? @ @@ @a @@version $ $1
$$a$$ $a$ 1 0 2 1.5 .5 1e5 1. 0x41 0xzz 0b1 x'41' b'1' n'a' u&'a' q'(a)' nq'[a]' e'a' { } {d [ ] \ \' '' a id foo
user or and union select from where like sleep(1) version() 1=1 <=> <= >> | & @`a` 1d 1f 0x TRUE null in not is
between exec begin goto declare sp_password into outfile drop table having limit interval binary collate convert cast
if user_id GROUP ORDER BY""".split() + [b" ", b"  ", b"-- ", b"#\n", b"--\n", b"\n", b"\t", b"\0", b"\xa0", b"\x0b",
    b"union all", b"waitfor delay", b"case when", b"\xc3\xa9"]
HTML = rb"""< > </ <! <!-- --> --!> -!> <!DOCTYPE <![CDATA[ ]]> <? <% %> / /> = " ' ` script SCRIPT a b svg xsl style img
iframe base xss foo onclick onload ONERROR on href src action attributename xmlns xlink:href to values javascript:
java data: vbscript: view-source: &# &#x &#106; &#x6a 106 6a ; & x 1 - ! [if xml import entity IMPORT text
&#9999999 &#x141""".split() + [b" ", b"\t", b"\n", b"\0", b"ENTITY ", b"\x01", b"\x0b", b"\xa0", b"\xc3\xa9"]


def pieces(tokens, most, odd=0.05):
    """Tokens behind each other, some of them replaced by a random byte."""
    count = random.randrange(most + 1)
    return b"".join(
        bytes([random.randrange(256)]) if random.random() < odd else random.choice(tokens) for _ in range(count)
    )


def mutate(text, tokens, chance):
    text = bytearray(text)
    while text and random.random() < chance:
        at = random.randrange(len(text) + 1)
        change = random.randrange(4)
        if change == 0:
            text[at:at] = random.choice(tokens)
        elif change == 1:
            del text[at : at + random.choice([1, 1, 2, 5])]
        elif change == 2 and at < len(text):
            text[at] = random.randrange(256)
        else:
            start = random.randrange(len(text) + 1)
            text[at:at] = text[start : start + random.randrange(8)]
    return bytes(text)


def transformation():
    name = random.choice(TRANSFORMATIONS)
    special = PATHS if "Path" in name else BASE64 if name.startswith("base64D") else VALUES
    tokens = special if random.random() < 0.8 else VALUES
    return name, pieces(tokens, random.choice([2, 6, 20]), 0 if tokens is not VALUES else 0.1)


def operator():
    digits = "".join(random.choice("0123456789-. x") for _ in range(random.randrange(14))).encode()
    repeated = random.choice("0123456789").encode() * random.randrange(9, 12)
    counted = b"01234567890"[random.randrange(2) :][: random.randrange(9, 12)]
    utf8 = [b"\xc3", b"\xa9", b"\xe2", b"\x82", b"\xac", b"\xed", b"\xa0", b"\x80", b"\xf4", b"\x90", b"\xf0", b"\x9f", b"\xc0",
        b"\xe0", b"\xf5", b"a", b"\xbf", b"\0"]
    choices = [digits, repeated, counted, valid_cpf(), valid_svnr(), b"%09d" % random.randrange(10**9),
        pieces(utf8, 5, 0), pieces([b"ab", b"a", b"b", b"B", b" ", b"_", b"1", b"x"], 6, 0), pieces([b"%", b"4", b"1", b"g"], 6, 0),
        pieces([b"10.", b"0", b".", b"1", b"192.168.1.1", b"::", b"2001", b"db8", b":", b"/"], 6, 0)]
    return (random.choice(choices),)


def valid_cpf():
    digits = [random.randrange(10) for _ in range(9)]
    for length in (10, 11):
        rest = sum(digit * (length - i) for i, digit in enumerate(digits)) % 11
        digits.append(0 if rest < 2 else 11 - rest)
    return "".join(map(str, digits)).encode()


def valid_svnr():
    digits = [random.randrange(10) for _ in range(10)]
    digits[3] = sum(a * b for a, b in zip(digits, [3, 7, 9, 0, 5, 8, 4, 2, 1, 6])) % 11 % 10
    return "".join(map(str, digits)).encode()


def injection():
    if random.random() < 0.4:
        start = random.choice([b"", b"", b"<a ", b"'", b'"', b" ", b"<", b"x "])
        return (start + pieces(HTML, 12),)
    words = [random.choice(SQL) + random.choice([b"", b"", b" "]) for _ in range(random.choice([1, 3, 5, 8, 14]))]
    return (mutate(b"".join(words), SQL, 0.2),)


def target():
    start = random.choice([b"/", b"/", b"http://h", b"http://h/", b"*", b"a:", b"//", b""])
    parts = [b"a", b"/", b"b.php", b"%2e", b"%2f", b"%", b"%4", b"\\", b"%5c", b":", b"//", b"#", b"%23", b"?", b"x=1", b"&", b"+",
        b"%zz", b"y"]
    cookies = [b"a", b"b", b"=", b";", b"; ", b" ", b"\t", b'"', b"%41", b"x=y", b"\x0b"]
    return start + pieces(parts, 9, 0), pieces(cookies, 11, 0)


def body():
    return random.choice([json_body, form_body, multipart_body, xml_body])()


def form_body():
    parts = [b"a", b"b", b"=", b"&", b"+", b"%41", b"%zz", b"%", b"%3d", b"%26", b"%00", b"\xc3\xa9", b";"]
    return b"application/x-www-form-urlencoded", pieces(parts, 13, 0)


def json_string():
    parts = [b"a", b"b.c", b"key", b"", b" ", b"\\n", b"\\u0041", b"\\ud83d\\ude00", b"\\ud83d", b"\\u0000", b"\xc3\xa9", b'\\"',
        b"\\/", b"some words"]
    bad = [b"\xff", b"\\x", b"\n", b"\\u00g", b"\xe0\x80", b"\xf8"]
    return b'"' + pieces(parts + (bad if random.random() < 0.05 else []), 3, 0) + b'"'


def json_value(depth=0):
    kind = random.randrange(9 if depth < 4 else 6)
    if kind < 2:
        rare = [b"01", b"-", b"1.", b".5", b"nul", b"True"] if random.random() < 0.1 else []
        return random.choice([b"1", b"-0", b"1.5e3", b"1E+5", b"true", b"false", b"null"] + rare)
    if kind < 6:
        return json_string()
    comma = random.choice([b","] * 20 + [b" , ", b",,", b" "])
    if kind == 6:
        return b"[" + comma.join(json_value(depth + 1) for _ in range(random.randrange(4))) + b"]"
    members = (json_string() + random.choice([b":"] * 20 + [b" : ", b""]) + json_value(depth + 1) for _ in range(random.randrange(4)))
    return b"{" + comma.join(members) + b"}"


def json_body():
    text = random.choice([b"", b" "]) + json_value() + random.choice([b""] * 9 + [b" ", b"x"])
    if random.random() < 0.2:
        text = mutate(text, [b",", b":", b"{", b"}", b"[", b"]", b"\\", b"1", b"\x0c"], 0.5)
    return b"application/json", text


def multipart_body():
    choose = random.choice
    boundary = choose([b"xx"] * 6 + [b"x y", b"a(b", b"a'b", b"--", b"x"])
    content_type = (choose([b"multipart/form-data; boundary="] * 8
        + [b"multipart/form-data;boundary=", b"Multipart/Form-Data ; boundary = ", b"multipart/form-data boundary="])
        + choose([boundary] * 6 + [b'"' + boundary + b'"']) + choose([b""] * 8 + [b"; charset=x", b" ", b";"]))
    line = lambda: choose([b"\r\n"] * 12 + [b"\n", b"\r", b"\r\r\n"])
    text = choose([b""] * 9 + [b"pre\r\n", b"\r\n", b"--\r\n", b"--x\r\n"])
    values = [b'"a"', b"a", b"'a'", b'"a\\"b"', b'"a\'b"', b'""', b'"a" ', b'"x;y"', b"b", b'"a\\b"', b"a/b"]
    for _ in range(choose([0, 1, 1, 2, 3])):
        disposition = b"Content-Disposition" + choose([b": ", b":"]) + choose([b"form-data"] * 9 + [b"file"])
        disposition += choose([b"; ", b";", b" ; "]) + choose([b"name="] * 9 + [b"name = ", b"Name="]) + choose(values)
        if random.random() < 0.4:
            disposition += b"; " + choose([b"filename="] * 9 + [b"filename =", b"filename*=utf-8''"]) + choose(values)
        if random.random() < 0.1:
            disposition += choose([b"; filename*=UTF-8''a%20b", b"; filename*=''x", b"; filename*=u''%zz", b";", b"x", b"; x=y"])
        headers = [disposition] if random.random() < 0.95 else []
        if random.random() < 0.3:
            headers.append(choose([b"Content-Type: text/plain", b"X: y", b"X Y: z", b"nocolon", b":v", b"X : y ", b"\xff: a"]))
        if random.random() < 0.15:
            headers.append(choose([disposition, b" folded", b'\tname="q"', b"\x0bz", b" "]))
        data = [b"v", b"", b"l1\r\nl2", b"l1\nl2\n", b"--" + boundary, b"--yy", b"-- " + boundary, b"x --" + boundary + b" y", b"a\0b",
            b"--\0", b"v\r", b'--"' + boundary + b'"']
        if random.random() < 0.03:
            data = [b"x" * choose([4094, 4095, 4096, 4097, 8192]) + choose([b"", b"\r\ny", b"\ny"])]
        text += b"--" + boundary + line() + b"".join(header + line() for header in headers) + line() + choose(data) + line()
    text += choose([b"--" + boundary + b"--\r\n"] * 8 + [b"--" + boundary + b"--", b"--" + boundary + b"--\n", b""])
    text += choose([b""] * 9 + [b"post", b"--" + boundary + b"--\r\n"])
    if random.random() < 0.2:
        text = mutate(text, [b"\r\n", b"\n", b"--", b"--" + boundary, b"\\", b";", b":", b" ", b"\0", b"\t"], 0.5)
    return content_type, text


def xml_text(rare):
    parts = [b"x", b" ", b"\n", b"\r\n", b"\r", b"&lt;", b"&amp;", b"&#65;", b"&#x42;", b"\xc3\xa9", b"text", b"]", b">", b'"', b"'"]
    bad = [b"&u;", b"&", b"<", b"]]>", b"\x01", b"\xff", b"&#0;", b"&#xffff;"]
    return pieces(parts + (bad if random.random() < rare else []), 3, 0)


def xml_element(depth=0):
    choose = random.choice
    name = choose([b"a", b"b", b"c1", b"d-e", b"_f", b"p:g", b"\xc3\xa9"])
    attributes = b""
    for attribute in random.sample([b"k", b"l", b"m", b"xml:lang"], choose([0, 0, 1, 2])):
        quote = choose([b'"', b"'"])
        attributes += choose([b" ", b"\n", b"  "]) + attribute + choose([b"=", b" = "]) + quote + xml_text(0.02).replace(quote, b"") + quote
    if random.random() < 0.2:
        return b"<" + name + attributes + b"/>"
    contents = [lambda: xml_text(0.03)] * 3 + [
        lambda: xml_element(depth + 1) if depth < 4 else b"", lambda: b"<!-- c -->", lambda: b"<![CDATA[<y>&z;]]>", lambda: b"<?p i?>"]
    content = b"".join(choose(contents)() for _ in range(random.randrange(4)))
    return b"<" + name + attributes + b">" + content + b"</" + (name if random.random() < 0.985 else b"z") + b">"


def xml_body():
    prolog = random.choice([b""] * 6 + [b'<?xml version="1.0"?>', b"<?xml version='1.0' encoding='iso-8859-1'?>", b"<!-- c -->", b"<!DOCTYPE a>"])
    text = prolog + xml_element() + random.choice([b""] * 9 + [b"\n", b"x", b"<b/>", b"<?p?>"])
    if random.random() < 0.1:
        text = mutate(text, [b"<", b">", b"&", b'"', b"/", b"!", b"-", b"?", b" "], 0.3)
    return b"text/xml", text


# Kind, its generator, rules, number of cases recorded.
KINDS = {
    "transformations": (transformation, None, 3000),
    "operators": (operator, "operators.conf", 2500),
    "injections": (injection, None, 3000),
    "targets": (target, "bodies.conf", 400),
    "bodies": (body, "bodies.conf", 700),
}


# Cases of rare defects, of which the tests want one.
FURTHER = {
    "transformations": [("normalizePathWin", b"/.."), ("normalizePathWin", b"a/./\\b/../g\t"), ("urlDecodeUni", b"%u00bar%u2039"),
        ("base64DecodeExt", b"Zm9v9")],
}


def record(oracle, kind, count, seed):
    generator, rules, _ = KINDS[kind]
    random.seed(seed)
    cases = sorted({tuple(generator()) for _ in range(count)} | set(FURTHER.get(kind, [])), key=str)
    if kind == "targets":
        # Where this crate differs on purpose, and what no C string holds.
        cases = [case for case in cases if b"%3f" not in case[0]]
    lines = ["\t".join(part if isinstance(part, str) else part.hex() for part in case) for case in cases]
    command = [oracle, kind] + ([HERE / rules] if rules else [])
    return subprocess.run(command, input="\n".join(lines) + "\n", capture_output=True, text=True, check=True).stdout


def main():
    with tempfile.TemporaryDirectory() as folder:
        oracle = Path(folder) / "oracle"
        subprocess.run(["g++", "-std=c++17", "-O1", "-o", oracle, HERE / "modsecurity.cc", "-lmodsecurity"], check=True)
        if len(sys.argv) == 4:
            print(record(oracle, sys.argv[1], int(sys.argv[2]), int(sys.argv[3])), end="")
            return
        for kind, (_, _, count) in KINDS.items():
            lines = record(oracle, kind, count, 1).splitlines(keepends=True)
            (HERE / f"{kind}.tsv").write_text("".join(line for line in lines if len(line) < 2000))


main()
