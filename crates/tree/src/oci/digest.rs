//! [`Digest`]: the digest of a blob, SHA-256 or SHA-512, parsed and verified.
//!
//! `image`, `files` and `layer` use it. A digest in JSON becomes the path of a file, so only the
//! exact number of lower-case hexadecimal digits is accepted.

use std::io::{self, Read};
use std::sync::{Arc, OnceLock};

use sha2::{Digest as _, Sha256, Sha512};

const BUFFER: usize = 128 << 10;

/// A digest: an algorithm and hexadecimal digits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Digest {
    algorithm: Algorithm,
    hex: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Algorithm {
    Sha256,
    Sha512,
}

impl Digest {
    /// Parses a digest. The error says what is wrong with it.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let (algorithm, hex) = text.split_once(':').unwrap_or_default();
        let (algorithm, length) = match algorithm {
            "sha256" => (Algorithm::Sha256, 64),
            "sha512" => (Algorithm::Sha512, 128),
            _ => return Err(format!("the digest '{text}' is of an unknown algorithm")),
        };
        // The digits become the name of a file.
        if hex.len() != length
            || !hex
                .bytes()
                .all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
        {
            return Err(format!("the digest '{text}' is damaged"));
        }
        Ok(Self {
            algorithm,
            hex: hex.to_owned(),
        })
    }

    /// Returns the path of the blob in a layout.
    pub(super) fn path(&self) -> String {
        format!("blobs/{}/{}", self.algorithm(), self.hex)
    }

    /// Has the digest of a stream computed, to compare it with this one.
    pub(super) fn compute(&self) -> Computed {
        Computed {
            expected: self.clone(),
            found: Arc::default(),
        }
    }

    fn algorithm(&self) -> &'static str {
        match self.algorithm {
            Algorithm::Sha256 => "sha256",
            Algorithm::Sha512 => "sha512",
        }
    }

    /// Whether the bytes have this digest.
    pub(super) fn is_of(&self, bytes: impl Read) -> io::Result<bool> {
        let hex = match self.algorithm {
            Algorithm::Sha256 => hash::<Sha256>(bytes)?,
            Algorithm::Sha512 => hash::<Sha512>(bytes)?,
        };
        Ok(hex == self.hex)
    }
}

impl std::fmt::Display for Digest {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}:{}", self.algorithm(), self.hex)
    }
}

/// A digest that is computed while another reads the stream.
#[derive(Debug)]
pub(super) struct Computed {
    expected: Digest,
    /// The digits, once the stream has ended.
    found: Arc<OnceLock<String>>,
}

impl Computed {
    /// Returns the stream's digest as it is to be.
    pub(super) fn digest(&self) -> &Digest {
        &self.expected
    }

    /// Returns a reader of the stream that computes its digest.
    pub(super) fn reader<R: Read>(&self, stream: R) -> impl Read + use<R> {
        let hash = match self.expected.algorithm {
            Algorithm::Sha256 => Hash::Sha256(Sha256::default()),
            Algorithm::Sha512 => Hash::Sha512(Sha512::default()),
        };
        Hashing {
            stream,
            hash,
            found: Arc::clone(&self.found),
        }
    }

    /// Returns whether the stream has ended and had its digest.
    pub(super) fn is_right(&self) -> bool {
        self.found.get() == Some(&self.expected.hex)
    }
}

/// A stream whose digest is computed as it is read.
struct Hashing<R> {
    stream: R,
    hash: Hash,
    found: Arc<OnceLock<String>>,
}

#[derive(Clone)]
enum Hash {
    Sha256(Sha256),
    Sha512(Sha512),
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.stream.read(buf)?;
        match &mut self.hash {
            Hash::Sha256(hash) => hash.update(&buf[..read]),
            Hash::Sha512(hash) => hash.update(&buf[..read]),
        }
        if read == 0 && !buf.is_empty() {
            let _ = self.found.set(match self.hash.clone() {
                Hash::Sha256(hash) => hex(hash),
                Hash::Sha512(hash) => hex(hash),
            });
        }
        Ok(read)
    }
}

fn hash<H: sha2::Digest>(mut bytes: impl Read) -> io::Result<String> {
    let mut hash = H::new();
    let mut buf = vec![0; BUFFER];
    loop {
        match bytes.read(&mut buf) {
            Ok(0) => break,
            Ok(read) => hash.update(&buf[..read]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(hex(hash))
}

/// Returns the hexadecimal digits of a hash.
pub(super) fn hex<H: sha2::Digest>(hash: H) -> String {
    hash.finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_compared() {
        let sha256 = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let digest = Digest::parse(sha256).unwrap();
        assert!(digest.is_of(&b"abc"[..]).unwrap());
        assert!(!digest.is_of(&b"abd"[..]).unwrap());
        assert_eq!(digest.to_string(), sha256);
        assert_eq!(digest.path(), sha256.replace("sha256:", "blobs/sha256/"));
        for wrong in [
            "",
            "sha256:",
            "md5:00",
            "sha256:../../x",
            &sha256[1..],
            &sha256.replace('b', "B"),
        ] {
            assert!(Digest::parse(wrong).is_err(), "{wrong}");
        }
    }
}
