//! `/upload`, with forms and without.

use super::*;

/// A form with everything that looks like a boundary and is none.
pub(in crate::site) const FORM: &str = "preamble --aXb\r\n--aXc\r\n--aXb\r\n\
    Content-Disposition: form-data; name=\"a\"\r\n\r\nxyz\r\n--aXb \t\r\n\
    Content-Type: text/plain\r\ncontent-disposition:form-data;filename=\"b;\\\".txt\" ; name=f\r\n\r\n\
    \r\n-\r\n--aX\r\r\r\n--aYb--aXb\r\r\n--aXb\r\n\
    Content-Disposition: form-data; name=\"\"; filename=\"gr\u{fc}n\"\r\n\r\n\r\n--aXb--\r\nepilogue\r\n--aXb\r\n";

/// What is answered to it: the second part is CR LF -, CR LF --aX, CR CR, CR LF --aYb--aXb, CR.
pub(in crate::site) fn form_answer() -> Expected {
    let length = FORM.len();
    let text = format!(
        "{{\"size\":{length},\"time\":0.######,\"parts\":[\n\
         {{\"name\":\"a\",\"filename\":null,\"size\":3}},\n\
         {{\"name\":\"f\",\"filename\":\"b;\\\".txt\",\"size\":24}},\n\
         {{\"name\":\"\",\"filename\":\"gr\u{fc}n\",\"size\":0}}\n]}}"
    );
    json(&text)
}

/// A form of one part, whose headers have so many bytes with the empty line that ends them.
fn part_with_head_of(bytes: usize) -> String {
    let line = "Content-Disposition: form-data; name=a\r\n";
    let filler = "y".repeat(bytes - line.len() - "X:\r\n\r\n".len());
    format!("--aXb\r\n{line}X:{filler}\r\n\r\n\r\n--aXb--")
}

/// Names that are told in unusual ways.
const NAMES: &str = "--aXb\r\n\
    Content-Disposition: form-data; name=a b ; filename = c d\r\n\r\n\r\n--aXb\r\n\
    Content-Disposition: form-data; name=a; filename=b; NAME=\"c\"; filename=d\r\n\r\n\r\n--aXb\r\n\
    Content-Disposition: form-data; name=a\r\nContent-Disposition: form-data; name=b\r\n\r\n\r\n--aXb\r\n\
    Content-Disposition: attachment; name=a\r\nContent-Disposition: form-data; name=b\r\n\r\n\r\n--aXb\r\n\
    Content-Disposition: form-data; name=\"a\" x; name=b\r\n\r\n\r\n--aXb\r\n\
    Content-Disposition: form-data; name=a; name=\"b\r\n\r\n\r\n--aXb--";

/// The last of a name counts, and what is no parameter ends them.
fn names_answer() -> Expected {
    let length = NAMES.len();
    let part = |name: &str, filename: &str| {
        format!("{{\"name\":\"{name}\",\"filename\":{filename},\"size\":0}}")
    };
    let parts = [
        part("a b", "\"c d\""),
        part("c", "\"d\""),
        part("b", "null"),
        part("b", "null"),
        part("a", "null"),
        part("a", "null"),
    ];
    json(&format!("{{\"size\":{length},\"time\":0.######,\"parts\":[\n{}\n]}}", parts.join(",\n")))
}

pub(in crate::site) const FORM_TYPE: &str = "Content-Type: multipart/form-data; boundary=aXb\r\n";

pub(super) fn uploads() -> Vec<Row> {
    let measured = |size: usize| json(&format!("{{\"size\":{size},\"time\":0.######}}"));
    let chunked = |body: &str| {
        format!("PUT /upload HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked\r\n\r\n{body}")
    };
    let form = |body: &str| send("POST /upload", FORM_TYPE, body);
    let no_form = |text: &str| reason(400, &format!("the body is not multipart/form-data: {text}"));
    let head = "--aXb\r\nContent-Disposition: form-data; name=a\r\n\r\n";
    vec![
        row(send("POST /upload", "", "hello"), measured(5)),
        row(send("PUT /upload", "Content-Type: text/plain\r\n", "hello"), measured(5)),
        row(send("POST /upload", "", ""), measured(0)),
        row(send("POST /upload", "", &"y".repeat(1 << 20)), measured(1 << 20)),
        row(send("POST /upload", "", &"y".repeat((1 << 20) + 1)), measured((1 << 20) + 1)),
        row(chunked("5\r\nhello\r\n1;x=y\r\n!\r\n0\r\nT: v\r\n\r\n"), measured(6)),
        row(
            chunked(&format!("180000\r\n{}\r\n0\r\n\r\n", "y".repeat(0x18_0000))),
            measured(0x18_0000),
        ),
        row(form(FORM), form_answer()),
        row(
            format!(
                "POST /upload HTTP/1.1\r\n{HOST}{FORM_TYPE}Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{FORM}\r\n0\r\n\r\n",
                FORM.len()
            ),
            form_answer(),
        ),
        row(form("--aXb--"), json("{\"size\":7,\"time\":0.######,\"parts\":[\n]}")),
        row(
            send(
                "POST /upload",
                "content-type: Multipart/Form-Data;charset=utf-8; BOUNDARY=\"aXb\"\r\n",
                "--aXb--",
            ),
            json("{\"size\":7,\"time\":0.######,\"parts\":[\n]}"),
        ),
        // Another type, whatever it begins with.
        row(
            send("POST /upload", "Content-Type: multipart/form-datax; boundary=aXb\r\n", "--aXb--"),
            measured(7),
        ),
        row(form(NAMES), names_answer()),
        row(form(""), no_form("the last boundary is missing")),
        row(form(&format!("{head}x")), no_form("the last boundary is missing")),
        row(form("--aXbc\r\n"), no_form("something follows a boundary on its line")),
        row(
            form("--aXb\r\n\r\n"),
            no_form("a part has no Content-Disposition: form-data with a name"),
        ),
        row(form(&format!("{head}\r\n").repeat(1001)), refused(413)),
        row(form(&(format!("{head}\r\n").repeat(1000) + "--aXb\r\nX")), refused(413)),
        row(
            form(&part_with_head_of(4096)),
            json(
                "{\"size\":4112,\"time\":0.######,\"parts\":[\n{\"name\":\"a\",\"filename\":null,\"size\":0}\n]}",
            ),
        ),
        row(form(&part_with_head_of(4097)), refused(413)),
        row(form(&part_with_head_of(4097)[..4103]), refused(413)),
        row(form(&part_with_head_of(4097)[..4102]), no_form("the last boundary is missing")),
        row(
            send("POST /upload", "Content-Type: multipart/form-data\r\n", "x"),
            no_form("its Content-Type needs a boundary of 1 to 70 characters"),
        ),
        row(
            send("POST /upload", "Content-Type: multipart/form-data; boundary=\"a\tb\"\r\n", "x"),
            no_form("its Content-Type needs a boundary of 1 to 70 characters"),
        ),
        row(
            ask("GET /upload", ""),
            Expected {
                headers: vec![("Allow", "POST, PUT".to_owned())],
                ..reason(405, "the method is GET; it may be POST or PUT")
            },
        ),
        row(
            send("PATCH /upload", "", "x"),
            reason(405, "the method is PATCH; it may be POST or PUT"),
        ),
        closes(
            ask("POST /upload", "Content-Length: 67108865\r\n"),
            reason(413, "the request body is too large; it may have 67108864 bytes"),
        ),
    ]
}
