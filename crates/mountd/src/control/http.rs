//! The part of HTTP/1.1 (RFC 9112) that answering `GET /metrics` takes.
//!
//! A connection is for one request. Its header fields do not matter here, and it cannot have a
//! body.
//!
//! `control` calls it for connections to the port of `--metrics`. Any other request gets an error
//! status.

/// The end of a request.
pub(super) const END: &[u8] = b"\r\n\r\n";
/// The limit for the length of a request.
pub(super) const MAX_REQUEST_BYTES: usize = 8192;

const TEXT: &str = "text/plain; charset=utf-8";
/// The media type of Prometheus' text format.
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Returns the answer to a request.
pub(super) fn answer(request: &[u8], metrics: impl FnOnce() -> String) -> Vec<u8> {
    if !request.ends_with(END) {
        let reason = if request.len() > MAX_REQUEST_BYTES {
            "431 Request Header Fields Too Large"
        } else {
            "400 Bad Request"
        };
        return response(reason, TEXT, "this is no request\n", true);
    }
    let line = request
        .split(|byte| *byte == b'\r')
        .next()
        .unwrap_or_default();
    let words: Vec<_> = line.split(|byte| *byte == b' ').collect();
    let [method, target, version] = words[..] else {
        return response("400 Bad Request", TEXT, "this is no request\n", true);
    };
    if !version.starts_with(b"HTTP/1.") {
        return response(
            "505 HTTP Version Not Supported",
            TEXT,
            "HTTP/1.1 is spoken here\n",
            true,
        );
    }
    let path = target.split(|byte| *byte == b'?').next();
    let with_body = method != b"HEAD";
    match (method, path) {
        (b"GET" | b"HEAD", Some(b"/metrics")) => response("200 OK", METRICS, &metrics(), with_body),
        (b"GET" | b"HEAD", _) => response("404 Not Found", TEXT, "there is /metrics\n", with_body),
        _ => response("405 Method Not Allowed", TEXT, "GET it\n", with_body),
    }
}

fn response(status: &str, kind: &str, body: &str, with_body: bool) -> Vec<u8> {
    let allow = if status.starts_with("405") {
        "Allow: GET, HEAD\r\n"
    } else {
        ""
    };
    let len = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len}\r\n{allow}Connection: close\r\n\r\n"
    );
    [
        head.as_bytes(),
        if with_body { body.as_bytes() } else { b"" },
    ]
    .concat()
}

#[cfg(test)]
mod tests {
    use super::answer;

    #[test]
    fn requests_of_every_kind_are_answered() {
        let check = |request: &str, status: &str| {
            let said =
                String::from_utf8(answer(request.as_bytes(), || "m 1\n".to_owned())).expect("text");
            assert!(
                said.starts_with(&format!("HTTP/1.1 {status} ")),
                "{request:?}: {said}"
            );
            said
        };
        let said = check("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "200");
        assert!(
            said.ends_with("\r\n\r\nm 1\n") && said.contains("Content-Length: 4\r\n"),
            "{said}"
        );
        let said = check("HEAD /metrics?x=1 HTTP/1.0\r\n\r\n", "200");
        assert!(
            said.ends_with("\r\n\r\n") && said.contains("Content-Length: 4\r\n"),
            "{said}"
        );
        check("GET / HTTP/1.1\r\n\r\n", "404");
        check("GET /metricsx HTTP/1.1\r\n\r\n", "404");
        assert!(check("POST /metrics HTTP/1.1\r\n\r\n", "405").contains("Allow: GET"));
        check("GET /metrics HTTP/2\r\n\r\n", "505");
        check("GET /metrics\r\n\r\n", "400");
        check("\r\n\r\n", "400");
        check("", "400");
        check("GET /metrics HTTP/1.1", "400");
        check(&"x".repeat(10_000), "431");
    }
}
