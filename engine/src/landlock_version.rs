//! The Landlock version of this kernel. Landlock restricts the files that a sandboxed program can access.

#[cfg(target_os = "linux")]
use landlock::{ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, Ruleset, RulesetAttr, Scope};

#[cfg(target_os = "linux")]
const ABI_VERSIONS: [ABI; 7] = [ABI::V1, ABI::V2, ABI::V3, ABI::V4, ABI::V5, ABI::V6, ABI::V7];

/// Returns the newest known Landlock version that this kernel supports; 0 if there is none.
#[cfg(target_os = "linux")]
pub fn landlock_version() -> u8 {
    let offered = |abi: &&ABI| {
        let strict = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
        let ruleset = strict
            .handle_access(AccessFs::from_all(**abi))
            .and_then(|r| if **abi >= ABI::V4 { r.handle_access(AccessNet::from_all(**abi)) } else { Ok(r) });
        let ruleset = ruleset.and_then(|r| if **abi >= ABI::V6 { r.scope(Scope::from_all(**abi)) } else { Ok(r) });
        ruleset.and_then(Ruleset::create).is_ok()
    };
    ABI_VERSIONS.iter().take_while(offered).last().map_or(0, |abi| *abi as u8)
}

/// Returns 0: other systems have no Landlock.
#[cfg(not(target_os = "linux"))]
pub fn landlock_version() -> u8 {
    0
}
