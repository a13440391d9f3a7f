//! Encodings, digests, times, addresses and certificates; the last are placeholders.

use std::fmt::Write as _;

use base64::Engine as _;
use sha2::Digest as _;

use super::{Arguments, print::strval};
use crate::{
    error::Failed,
    exec::Interpreter,
    value::{Map, Value},
};

/// The time at which charts are rendered.
const NOW: &str = "2000-01-01T00:00:00Z";

pub(super) fn base64(bytes: &[u8]) -> String {
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

pub(super) fn call(
    run: &mut Interpreter<'_>,
    name: &str,
    arguments: &Arguments<'_>,
) -> Option<Result<Value, Failed>> {
    Some(match name {
        "b64enc" => {
            arguments.at(0).and_then(|value| Ok(Value::text(base64(strval(run, value)?.text.as_bytes()))))
        }
        "b64dec" => arguments.str(0).map(|text| {
            let decoded = base64::engine::general_purpose::STANDARD.decode(text);
            // As Sprig does: the text of the error.
            decoded.map_or_else(
                |_| Value::text("illegal base64 data"),
                |bytes| Value::text(String::from_utf8_lossy(&bytes).as_ref()),
            )
        }),
        "b32enc" => arguments.str(0).map(|text| Value::text(base32(text.as_bytes()))),
        "sha256sum" => arguments.str(0).map(|text| Value::text(hex(&sha2::Sha256::digest(text)))),
        "sha512sum" => arguments.str(0).map(|text| Value::text(hex(&sha2::Sha512::digest(text)))),
        // Only names and checksums are made of it; the prefix of a longer digest is as good.
        "sha1sum" => arguments.str(0).map(|text| {
            Value::text(hex(sha2::Sha256::digest(text).as_slice().get(..20).unwrap_or_default()))
        }),
        "adler32sum" => arguments.str(0).map(|text| {
            let (a, b) = text.bytes().fold((1_u32, 0_u32), |(a, b), byte| {
                let a = (a + u32::from(byte)) % 65_521;
                (a, (a + b) % 65_521)
            });
            Value::text(((b << 16) | a).to_string())
        }),
        "now" => Ok(Value::text(NOW)),
        "unixEpoch" => Ok(Value::text("946684800")),
        "date" | "dateInZone" | "date_in_zone" | "htmlDate" | "htmlDateInZone" | "dateModify"
        | "date_modify" | "toDate" | "ago" | "duration" | "durationRound" => Ok(Value::text("2000-01-01")),
        "uuidv4" => Ok(Value::text("00000000-0000-4000-8000-000000000000")),
        "bcrypt" | "htpasswd" | "derivePassword" | "encryptAES" | "decryptAES" | "genPrivateKey"
        | "randBytes" => Ok(Value::text("placeholder")),
        "genCA"
        | "genCAWithKey"
        | "genSelfSignedCert"
        | "genSelfSignedCertWithKey"
        | "genSignedCert"
        | "genSignedCertWithKey"
        | "buildCustomCert" => {
            let map = [("Cert", Value::text("placeholder")), ("Key", Value::text("placeholder"))];
            Ok(run.heap.map(map.into_iter().map(|(key, value)| (key.into(), value)).collect()))
        }
        "urlParse" => arguments.str(0).map(|text| {
            let map = url(text);
            run.heap.map(map)
        }),
        "urlJoin" => url_joined(run, arguments),
        _ => return None,
    })
}

fn base32(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
    let mut text = String::new();
    for chunk in bytes.chunks(5) {
        let mut bits = 0_u64;
        for index in 0..5 {
            bits = (bits << 8) | u64::from(chunk.get(index).copied().unwrap_or_default());
        }
        let used = (chunk.len() * 8).div_ceil(5);
        for index in 0..8 {
            let digit = usize::try_from((bits >> (35 - 5 * index)) & 31).unwrap_or_default();
            let letter = ALPHABET.get(digit).copied().filter(|_| index < used).unwrap_or(b'=');
            text.push(char::from(letter));
        }
    }
    text
}

fn url(text: &str) -> Map {
    let (scheme, rest) = text.split_once("://").unwrap_or(("", text));
    let (rest, fragment) = rest.split_once('#').unwrap_or((rest, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, path) = if scheme.is_empty() {
        ("", rest)
    } else {
        rest.find('/').map_or((rest, ""), |at| rest.split_at(at))
    };
    let (userinfo, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    let hostname = host.rsplit_once(':').map_or(host, |(name, _)| name);
    [
        ("scheme", scheme),
        ("host", host),
        ("hostname", hostname),
        ("path", path),
        ("query", query),
        ("fragment", fragment),
        ("userinfo", userinfo),
        ("opaque", ""),
    ]
    .into_iter()
    .map(|(key, value)| (key.into(), Value::text(value)))
    .collect()
}

fn url_joined(run: &mut Interpreter<'_>, arguments: &Arguments<'_>) -> Result<Value, Failed> {
    let map = arguments.map(run, 0)?;
    let part = |key: &str| map.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut text = String::new();
    for (before, key, after) in [
        ("", "scheme", "://"),
        ("", "userinfo", "@"),
        ("", "host", ""),
        ("", "path", ""),
        ("?", "query", ""),
        ("#", "fragment", ""),
    ] {
        let value = part(key);
        if !value.is_empty() {
            text.push_str(before);
            text.push_str(&value);
            text.push_str(after);
        }
    }
    Ok(Value::text(text))
}
