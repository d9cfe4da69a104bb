//! What a daemon that serves may still do: little more than look after the files of its disks.
//!
//! Called once by the daemon's wiring. Capabilities belong to threads, which inherit them, so it comes before the first
//! thread; and the kernel writes to a registered file with the rights of who registered it, so it comes before the first
//! file. Takes no lock.

use std::fs;

use rustix::io::Errno;
use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
use rustix::thread::{
    CapabilitiesSecureBits, CapabilitySet, CapabilitySets, capabilities, capabilities_secure_bits,
    remove_capability_from_bounding_set, set_capabilities, set_capabilities_secure_bits, set_no_new_privs,
};

use crate::error::{SetupError, errno_text};

/// What serving needs. docs/OPERATIONS.md says the same to an operator.
const NEEDED: [CapabilitySet; 6] = [
    // Registers files for passthrough, and unmounts.
    CapabilitySet::SYS_ADMIN,
    // A file belongs to the user who made it.
    CapabilitySet::CHOWN,
    // It is found, served and evicted whoever may read it and the directories above it.
    CapabilitySet::DAC_OVERRIDE,
    // Its mode and times are set for its owner.
    CapabilitySet::FOWNER,
    // Its setgid bit stays for a group that is not ours.
    CapabilitySet::FSETID,
    // Clients' bytes are not root's: `sys::as_nobody`.
    CapabilitySet::SETUID,
];

/// Gives up what serving does not need, for the threads that are started from now on.
///
/// A daemon that may not mount keeps what `fusermount3` needs to do it, and so the way to become more by a program that
/// it starts; of its own capabilities it keeps no others than these either.
///
/// # Errors
/// The kernel refused.
pub fn confine() -> Result<(), SetupError> {
    let now = capabilities(None).map_err(|errno| refused(errno, "be read"))?;
    let mounts_itself = now.effective.contains(CapabilitySet::SYS_ADMIN);
    if mounts_itself {
        bound_programs()?;
    }
    keep_memory_out_of_dumps(mounts_itself);
    let kept = now.permitted & needed();
    // What is not inheritable is not ambient either.
    let sets = CapabilitySets { effective: now.effective & kept, permitted: kept, inheritable: CapabilitySet::empty() };
    set_capabilities(None, sets).map_err(|errno| refused(errno, "be given up"))
}

fn needed() -> CapabilitySet {
    NEEDED.into_iter().fold(CapabilitySet::empty(), CapabilitySet::union)
}

/// No program that the daemon might start gets more than the daemon has.
fn bound_programs() -> Result<(), SetupError> {
    // Without CAP_SETPCAP these stay: then `no_new_privs` alone bounds programs, and `as_nobody` lets go of a few more
    // capabilities while it lasts.
    for number in 0..u64::BITS {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        // EINVAL: the kernel has no more.
        if !needed().contains(capability) && remove_capability_from_bounding_set(capability).is_err() {
            break;
        }
    }
    if let Ok(bits) = capabilities_secure_bits() {
        let _ = set_capabilities_secure_bits(bits | CapabilitiesSecureBits::NO_SETUID_FIXUP);
    }
    set_no_new_privs(true).map_err(|errno| refused(errno, "be kept from programs"))
}

/// The daemon's memory holds what clients stored. A handler that cores are piped to heeds no limit, so their contents are
/// filtered too: `as_nobody` sets dumpability back to the system's default, which may be a dump for root.
fn keep_memory_out_of_dumps(may_hide: bool) {
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    if let Err(errno) = setrlimit(Resource::Core, none) {
        log::warn!("core dumps cannot be limited: {}", errno_text(errno));
    }
    if let Err(error) = fs::write("/proc/self/coredump_filter", "0") {
        log::warn!("memory cannot be kept out of core dumps: {error}");
    }
    // It hides a daemon's descriptors from its own user, who needs them to end one that hangs; root sees them anyway.
    if may_hide && let Err(errno) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        log::warn!("core dumps cannot be switched off: {}", errno_text(errno));
    }
}

fn refused(errno: Errno, what: &str) -> SetupError {
    SetupError::Failed(format!("the daemon's privileges cannot {what}: {}", errno_text(errno)))
}
