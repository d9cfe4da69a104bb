//! Tells the kernel what it must no longer believe.
//!
//! An invalidation takes the directory's lock in the kernel, which a request may hold while a handler of ours works for
//! it: so only this thread notifies, and it holds no lock. The queue is bounded and drops what does not fit; what is
//! dropped is believed for `entry_ttl` at most, and an open of it is a miss.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::mpsc::{self, Receiver, SyncSender};

use fuser::INodeNo;

use crate::volume::OnEvicted;
use crate::volume::attr::Ino;

/// Names that wait for the kernel; more are dropped.
const QUEUE: usize = 16_384;

/// A name that has gone, in its directory.
type Gone = (Ino, Box<[u8]>);

/// The volume's end of the queue, and the thread's.
pub fn queue() -> (OnEvicted, EvictedNames) {
    let (tell, hear): (SyncSender<Gone>, _) = mpsc::sync_channel(QUEUE);
    let on_evicted: OnEvicted = Box::new(move |dir, name| drop(tell.try_send((dir, name.into()))));
    (on_evicted, EvictedNames(hear))
}

/// Names that were evicted and that the kernel may still know.
pub struct EvictedNames(Receiver<Gone>);

impl EvictedNames {
    /// Invalidates what is evicted, as long as there is a volume and a kernel to tell.
    pub(super) fn tell(self, kernel: &fuser::Notifier) {
        for (dir, name) in self.0 {
            if let Err(error) = kernel.inval_entry(INodeNo(dir.0), OsStr::from_bytes(&name)) {
                log::debug!("the kernel did not take an invalidation: {error}");
            }
        }
    }
}
