//! What went wrong on the way to a webhook, in the words of Go's HTTP client, which are those administrators search for.

use std::error::Error;
use std::io;

use palisade_base::go;
use rustls::CertificateError;

/// The error of a failed request, after `Post "<url>": `.
pub(super) fn request_error(error: &(dyn Error + 'static)) -> String {
    let mut current = Some(error);
    let mut text = error.to_string();
    while let Some(error) = current {
        if let Some(tls) = error.downcast_ref::<rustls::Error>() {
            return tls_error(tls);
        }
        if let Some(io) = error.downcast_ref::<io::Error>() {
            // What an I/O error wraps is not its source, and it may be wrapped more than once.
            let Some(inner) = io.get_ref() else { return io_error(io) };
            text = inner.to_string();
            current = Some(inner);
            continue;
        }
        if let Some(hyper) = error.downcast_ref::<hyper::Error>()
            && (hyper.is_incomplete_message() || hyper.is_closed())
        {
            return "EOF".to_owned();
        }
        text = error.to_string();
        current = error.source();
    }
    text
}

/// The error of a failed connection.
pub(super) fn dial_error(address: &str, error: &io::Error) -> String {
    format!("dial tcp {address}: connect: {}", io_error(error))
}

fn io_error(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        io::ErrorKind::ConnectionReset => "connection reset by peer".to_owned(),
        io::ErrorKind::NetworkUnreachable => "network is unreachable".to_owned(),
        io::ErrorKind::HostUnreachable => "no route to host".to_owned(),
        io::ErrorKind::BrokenPipe => "broken pipe".to_owned(),
        io::ErrorKind::TimedOut => "connection timed out".to_owned(),
        io::ErrorKind::UnexpectedEof => "EOF".to_owned(),
        _ => error.to_string(),
    }
}

fn tls_error(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidCertificate(problem) => {
            format!("tls: failed to verify certificate: x509: {}", certificate_error(problem))
        }
        // The first bytes of plain HTTP are no TLS record.
        rustls::Error::InvalidMessage(_) => "http: server gave HTTP response to HTTPS client".to_owned(),
        rustls::Error::AlertReceived(alert) => format!("remote error: tls: {alert:?}"),
        other => format!("tls: {other}"),
    }
}

fn certificate_error(problem: &CertificateError) -> String {
    let time = |t: &rustls::pki_types::UnixTime| {
        i64::try_from(t.as_secs()).ok().and_then(|s| jiff::Timestamp::from_second(s).ok()).unwrap_or_default()
    };
    match problem {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "certificate signed by unknown authority".to_owned()
        }
        CertificateError::ExpiredContext { time: now, not_after } => format!(
            "certificate has expired or is not yet valid: current time {} is after {}",
            time(now),
            time(not_after)
        ),
        CertificateError::NotValidYetContext { time: now, not_before } => format!(
            "certificate has expired or is not yet valid: current time {} is before {}",
            time(now),
            time(not_before)
        ),
        CertificateError::Expired | CertificateError::NotValidYet => {
            "certificate has expired or is not yet valid".to_owned()
        }
        CertificateError::NotValidForNameContext { expected, presented } => {
            not_valid_for(&expected.to_str(), presented)
        }
        other => format!("{other:?}"),
    }
}

fn not_valid_for(wanted: &str, presented: &[String]) -> String {
    let of = |prefix: &str| -> Vec<&str> {
        let inside = |name: &'_ String| -> Option<(usize, usize)> {
            let start = name.strip_prefix(prefix)?.strip_prefix('(')?;
            Some((name.len() - start.len(), name.len().saturating_sub(1)))
        };
        presented
            .iter()
            .filter_map(|name| inside(name).and_then(|(from, to)| name.get(from..to)))
            .map(|name| name.trim_matches('"'))
            .collect()
    };
    if wanted.parse::<std::net::IpAddr>().is_ok() {
        let addresses = of("IpAddress");
        if addresses.is_empty() {
            return format!(
                "cannot validate certificate for {wanted} because it doesn't contain any IP SANs"
            );
        }
        return format!("certificate is valid for {}, not {wanted}", addresses.join(", "));
    }
    let names = of("DnsName");
    if names.is_empty() {
        return format!("certificate is not valid for any names, but wanted to match {wanted}");
    }
    format!("certificate is valid for {}, not {wanted}", names.join(", "))
}

/// What upstream's client makes of an answer that is neither success nor a `Status`.
pub(super) fn unexpected_answer(code: u16, body: &[u8]) -> String {
    if let Ok(status) = serde_json::from_slice::<serde_json::Value>(body)
        && status.get("kind").and_then(serde_json::Value::as_str) == Some("Status")
        && let Some(message) = status.get("message").and_then(serde_json::Value::as_str)
    {
        return message.to_owned();
    }
    let content = std::str::from_utf8(body).map_or("unknown", str::trim);
    match code {
        400 => "the server rejected our request for an unknown reason".to_owned(),
        401 => "the server has asked for the client to provide credentials".to_owned(),
        403 => content.to_owned(),
        404 => "the server could not find the requested resource".to_owned(),
        405 => "the server does not allow this method on the requested resource".to_owned(),
        409 => "the server reported a conflict".to_owned(),
        422 => "the server rejected our request due to an error in our request".to_owned(),
        429 => "the server has received too many requests and has asked us to try again later".to_owned(),
        503 => "the server is currently unable to handle the request".to_owned(),
        504 => "the server was unable to return a response in the time allotted, but may still be processing the \
                request"
            .to_owned(),
        code if code >= 500 => {
            format!("an error on the server ({}) has prevented the request from succeeding", go::quote(content))
        }
        code => format!("the server responded with the status code {code} but did not return more information"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_a_certificate_is_good_for() {
        let presented = [r#"DnsName("a.b")"#.to_owned(), "IpAddress(127.0.0.1)".to_owned()];
        for (wanted, presented, expected) in [
            ("x.y", &presented[..], "certificate is valid for a.b, not x.y"),
            ("10.0.0.1", &presented[..], "certificate is valid for 127.0.0.1, not 10.0.0.1"),
            (
                "10.0.0.1",
                &presented[..1],
                "cannot validate certificate for 10.0.0.1 because it doesn't contain any IP SANs",
            ),
            ("x", &[], "certificate is not valid for any names, but wanted to match x"),
        ] {
            assert_eq!(not_valid_for(wanted, presented), expected);
        }
    }

    #[test]
    fn answers_that_are_no_reviews() {
        assert_eq!(unexpected_answer(404, b""), "the server could not find the requested resource");
        assert_eq!(
            unexpected_answer(500, b"oh \"no\"\n"),
            r#"an error on the server ("oh \"no\"") has prevented the request from succeeding"#
        );
        assert_eq!(unexpected_answer(500, br#"{"kind":"Status","message":"m"}"#), "m");
    }
}
