//! The slots of Redis Cluster: which keys live together.

/// How many slots a cluster has.
const SLOTS: u16 = 16_384;

/// The slot of a key: of what stands between its first `{` and the next `}`, where that is not empty.
pub(super) fn slot(key: &[u8]) -> u16 {
    crc16(hashed(key)) % SLOTS
}

fn hashed(key: &[u8]) -> &[u8] {
    let tag = || {
        let open = key.iter().position(|b| *b == b'{')? + 1;
        let length = key[open..].iter().position(|b| *b == b'}')?;
        (length > 0).then(|| &key[open..open + length])
    };
    tag().unwrap_or(key)
}

/// CRC16-XMODEM.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0u16, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_cluster_specification() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(slot(b"{user1000}.following"), slot(b"{user1000}.followers"));
        assert_eq!(slot(b"foo{bar}{zap}"), slot(b"bar"));
        // An empty tag, and one that does not end, are none.
        assert_ne!(slot(b"foo{}{bar}"), slot(b"bar"));
        assert_eq!(hashed(b"foo{}{bar}"), b"foo{}{bar}");
        assert_eq!(hashed(b"foo{{bar}}zap"), b"{bar");
        assert_eq!(hashed(b"foo{bar"), b"foo{bar");
    }
}
