//! The words of mount(8) that say nothing to kvspan.
//!
//! `options` ignores [`UNDERSTOOD`] everywhere. A mount helper, which is handed whatever an fstab line or a mount
//! unit holds, also drops what [`is_foreign`] recognises before it parses. Pure.

/// Words that describe what kvspan does anyway, so that a line written for another file system works.
pub const UNDERSTOOD: &[&str] = &["defaults", "noatime", "nodev", "nodiratime", "nosuid"];

/// Words that mount(8) and systemd use themselves and may still pass on, and those of the kernel's FUSE mounts, which a
/// remount brings from the mount table.
const FOREIGN: &[&str] = &[
    "_netdev",
    "async",
    "atime",
    "auto",
    "blksize",
    "default_permissions",
    "dev",
    "diratime",
    "dirsync",
    "exec",
    "fd",
    "group",
    "group_id",
    "lazytime",
    "loud",
    "max_read",
    "noauto",
    "nofail",
    "nolazytime",
    "norelatime",
    "nostrictatime",
    "nouser",
    "nousers",
    "owner",
    "relatime",
    "rootmode",
    "silent",
    "strictatime",
    "suid",
    "sync",
    "user",
    "user_id",
    "users",
];

/// True for a word (`name` or `name=value`) that only mount(8) or systemd means.
pub fn is_foreign(word: &str) -> bool {
    let name = word.split('=').next().unwrap_or(word);
    FOREIGN.contains(&name)
        || UNDERSTOOD.contains(&name)
        || name.starts_with("x-")
        || name.starts_with("X-")
        || name == "comment"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_words() {
        for word in ["_netdev", "nofail", "user=alice", "x-systemd.automount", "X-mount.mkdir", "comment=a", "defaults"]
        {
            assert!(is_foreign(word), "{word}");
        }
        for word in ["ro", "rw", "limit=95%", "allow_other", "remount", "noexec"] {
            assert!(!is_foreign(word), "{word}");
        }
    }
}
