//! Escapes, surrogates, whitespace and nesting in the text of JSON.

use memchr::{memchr, memchr2_iter};

use crate::scan::DEPTH_LIMIT;

#[inline(always)]
pub fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

/// Appends the meaning of a text's content. The content is well-formed, and has no half of a surrogate pair.
pub fn unescape(content: &[u8], out: &mut Vec<u8>) {
    let mut rest = content;
    while let Some(found) = memchr(b'\\', rest) {
        out.extend_from_slice(&rest[..found]);
        rest = &rest[found + 1..];
        let byte = match rest[0] {
            b'u' => {
                rest = unescape_code(rest, out);
                continue;
            }
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            other => other,
        };
        out.push(byte);
        rest = &rest[1..];
    }
    out.extend_from_slice(rest);
}

/// Appends the character of `uXXXX` or `uXXXX\uXXXX` and returns what follows.
fn unescape_code<'a>(escape: &'a [u8], out: &mut Vec<u8>) -> &'a [u8] {
    let (high, mut rest) = (hex(&escape[1..5]), &escape[5..]);
    let mut code = high;
    if is_high(high) && rest.starts_with(b"\\u") && rest.len() >= 6 {
        let low = hex(&rest[2..6]);
        if is_low(low) {
            code = 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
            rest = &rest[6..];
        }
    }
    // Keys of malformed lines may hold half a pair; those lines give no row.
    let character = char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
    out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
    rest
}

/// Appends a text in quotes as Python's `json.dumps` writes it, characters beyond ASCII as they are.
pub fn write_text(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for byte in text {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', *byte]),
            8 => out.extend_from_slice(b"\\b"),
            12 => out.extend_from_slice(b"\\f"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0..=0x1f => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
            _ => out.push(*byte),
        }
    }
    out.push(b'"');
}

fn hex(digits: &[u8]) -> u32 {
    digits.iter().fold(0, |code, digit| code * 16 + char::from(*digit).to_digit(16).unwrap_or(0))
}

fn is_high(code: u32) -> bool {
    (0xD800..0xDC00).contains(&code)
}

fn is_low(code: u32) -> bool {
    (0xDC00..0xE000).contains(&code)
}

/// Whether well-formed JSON has half a surrogate pair: then it is no Unicode text.
pub fn has_lone_surrogate(text: &[u8]) -> bool {
    // The place at which the second half of a pair has to begin.
    let mut expected = None;
    let mut at = 0;
    while let Some(found) = memchr(b'\\', &text[at..]) {
        let start = at + found;
        let is_code = text.get(start + 1) == Some(&b'u');
        let code = if is_code { hex(&text[start + 2..start + 6]) } else { 0 };
        at = start + if is_code { 6 } else { 2 };
        if (expected == Some(start)) != is_low(code) || (expected.is_some() && expected != Some(start)) {
            return true;
        }
        expected = is_high(code).then_some(at);
    }
    expected.is_some()
}

/// Appends JSON text without insignificant whitespace; numbers and escapes stay as written.
pub fn compact(raw: &[u8], out: &mut Vec<u8>) {
    let mut at = 0;
    while at < raw.len() {
        let from = at;
        at += 1;
        if raw[from] == b'"' {
            at = after_string(raw, at);
            out.extend_from_slice(&raw[from..at]);
        } else if !is_space(raw[from]) {
            out.push(raw[from]);
        }
    }
}

/// Whether brackets nest deeper than the limit, in any text, well-formed or not.
pub fn is_too_deep(text: &[u8]) -> bool {
    if memchr2_iter(b'{', b'[', text).nth(DEPTH_LIMIT).is_none() {
        return false;
    }
    let (mut depth, mut at) = (0i64, 0);
    while at < text.len() {
        at += 1;
        match text[at - 1] {
            b'"' => at = after_string(text, at),
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth -= 1,
            _ => {}
        }
        if depth > DEPTH_LIMIT as i64 {
            return true;
        }
    }
    false
}

/// The place after a string's closing quote, or the end of the text. `at` is the place after its opening quote.
fn after_string(text: &[u8], mut at: usize) -> usize {
    while at < text.len() && text[at] != b'"' {
        at += if text[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unescaped(content: &str) -> String {
        let mut out = Vec::new();
        unescape(content.as_bytes(), &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn escapes_get_their_meaning() {
        assert_eq!(unescaped(r#"a\"\\\/\b\f\n\r\tz"#), "a\"\\/\u{8}\u{c}\n\r\tz");
        assert_eq!(unescaped(r"\u00e9 \ud83d\uDE00!"), "é 😀!");
    }

    #[test]
    fn texts_are_written_with_the_fewest_escapes() {
        let mut out = Vec::new();
        write_text("a\"\\/\u{8}\u{c}\n\r\t\0\u{1f}\u{7f}é😀".as_bytes(), &mut out);
        assert_eq!(out, "\"a\\\"\\\\/\\b\\f\\n\\r\\t\\u0000\\u001f\u{7f}é😀\"".as_bytes());
    }

    #[test]
    fn half_a_pair_is_found() {
        for text in [r"\ud83d", r"\ude00", r"\ud83d \ude00", r"\ud83d\ud83d\ude00", r"\ud83d\n", r"\ud83d\u0041"] {
            assert!(has_lone_surrogate(text.as_bytes()), "{text}");
        }
        for text in [r"\ud83d\ude00", r"\\ud83d", r"\u0041", "", r"\ud83d\ude00\ud83d\ude00"] {
            assert!(!has_lone_surrogate(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn whitespace_outside_strings_is_dropped() {
        let mut out = Vec::new();
        compact(b"{ \"a b\\\" \" :\t[ 1.0 , {} ] }", &mut out);
        assert_eq!(out, b"{\"a b\\\" \":[1.0,{}]}");
    }

    #[test]
    fn brackets_in_strings_have_no_depth() {
        let deep = "[".repeat(DEPTH_LIMIT + 1);
        assert!(is_too_deep(deep.as_bytes()));
        assert!(!is_too_deep(format!("\"{deep}").as_bytes()));
        assert!(!is_too_deep("[".repeat(DEPTH_LIMIT).as_bytes()));
        assert!(!is_too_deep("[]".repeat(DEPTH_LIMIT * 2).as_bytes()));
        assert!(is_too_deep(format!("\"\\\"\"{deep}\"\\").as_bytes()));
    }
}
