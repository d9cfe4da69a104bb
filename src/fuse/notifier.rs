//! Tells the kernel what it must no longer believe.
//!
//! Two messages, sent by this thread alone and with no lock held. `FUSE_NOTIFY_INVAL_INODE` makes the kernel ask for the
//! attributes of an evicted file, which answers that the file has gone; then the name is looked up again.
//! `FUSE_NOTIFY_PRUNE` (kernel 6.18) drops its names and gives the inode back. `FUSE_NOTIFY_INVAL_ENTRY` is not used: it
//! waits, not to be interrupted, for the directory's lock, which a client holds while it waits for an answer. A daemon
//! that is killed then leaves one thread with the device open, so the connection does not end and the client waits for
//! ever.
//!
//! The queue is bounded and drops what does not fit: that is believed for `entry_ttl` at most, and an open of it is a miss.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::time::Duration;

use fuser::INodeNo;
use rustix::io::Errno;

use crate::volume::OnEvicted;
use crate::volume::attr::Ino;

/// Inodes that wait for the kernel; more are dropped.
const QUEUE: usize = 65_536;
/// Inodes that one message prunes.
const BATCH: usize = 256;
/// How long a message waits for more inodes.
const BATCH_PATIENCE: Duration = Duration::from_millis(20);
/// `enum fuse_notify_code` of the kernel's `fuse.h`, ABI 7.45.
const FUSE_NOTIFY_PRUNE: u32 = 9;

/// The volume's end of the queue, and the thread's.
pub fn queue() -> (OnEvicted, EvictedFiles) {
    let (tell, hear): (SyncSender<Ino>, _) = mpsc::sync_channel(QUEUE);
    let on_evicted: OnEvicted = Box::new(move |ino| {
        let _full_or_gone = tell.try_send(ino);
    });
    (on_evicted, EvictedFiles(hear))
}

/// Files that were evicted and that the kernel may still know.
pub struct EvictedFiles(Receiver<Ino>);

impl EvictedFiles {
    /// Invalidates what is evicted, as long as there is a volume and a kernel to tell.
    pub(super) fn tell(self, kernel: &fuser::Notifier, device: &OwnedFd) {
        let mut prunes = true;
        while let Ok(first) = self.0.recv() {
            let mut batch = vec![first];
            invalidate(kernel, first);
            while batch.len() < BATCH
                && let Ok(ino) = self.0.recv_timeout(BATCH_PATIENCE)
            {
                invalidate(kernel, ino);
                batch.push(ino);
            }
            prunes = prunes && prune(device, &batch);
        }
    }
}

fn invalidate(kernel: &fuser::Notifier, ino: Ino) {
    // A negative offset leaves the pages alone: there are none behind passthrough.
    if let Err(error) = kernel.inval_inode(INodeNo(ino.0), -1, 0) {
        log::debug!("the kernel did not take an invalidation: {error}");
    }
}

/// False when this kernel does not know the message.
fn prune(device: &OwnedFd, inodes: &[Ino]) -> bool {
    match rustix::io::write(device.as_fd(), &prune_message(inodes)) {
        Err(Errno::INVAL | Errno::NOSYS) => {
            log::info!("this kernel cannot be told to drop names; it keeps those of evicted files as long as it likes");
            false
        }
        _ => true,
    }
}

/// `fuse_out_header` (length, code, 0), `fuse_notify_prune_out` (count, padding, spare) and the inode numbers.
fn prune_message(inodes: &[Ino]) -> Vec<u8> {
    let length = 16 + 16 + 8 * inodes.len();
    let mut message = Vec::with_capacity(length);
    message.extend_from_slice(&u32::try_from(length).unwrap_or(0).to_ne_bytes());
    message.extend_from_slice(&FUSE_NOTIFY_PRUNE.to_ne_bytes());
    message.extend_from_slice(&0u64.to_ne_bytes());
    message.extend_from_slice(&u32::try_from(inodes.len()).unwrap_or(0).to_ne_bytes());
    message.extend_from_slice(&[0; 12]);
    for ino in inodes {
        message.extend_from_slice(&ino.0.to_ne_bytes());
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prune_message_is_laid_out_as_the_kernel_reads_it() {
        let message = prune_message(&[Ino(0x0102), Ino(3)]);
        let mut expected = Vec::new();
        for word in [48u32, 9, 0, 0, 2, 0, 0, 0, 0x0102, 0, 3, 0] {
            expected.extend_from_slice(&word.to_ne_bytes());
        }
        if cfg!(target_endian = "little") {
            assert_eq!(message, expected);
        }
    }
}
