//! The line of an approval request that names the grant that allows the call, and the risk of the call.

use rye_compiler::semantics::capability::pattern_matches;
use rye_compiler::semantics::risk::RiskTable;
use rye_engine::engine::ApprovalRequest;

use crate::report::printable;

/// Returns the grant that allows a capability, the directive that declares the grant, and the tier of the risk table.
/// Without the grant if the thread has none that matches.
pub fn grant_line(request: &ApprovalRequest<'_>, capability: &str) -> String {
    let plan = request.plan;
    let built_in = RiskTable::default();
    let table = plan.settings.risk().ok().flatten().unwrap_or(&built_in);
    let risk = format!("risk {}", table.classify(capability).tier.as_str());
    let own = request.grants.first().map_or(&[][..], Vec::as_slice);
    let Some(grant) = own.iter().find(|grant| pattern_matches(&grant.pattern, capability)) else {
        return format!("  {risk}");
    };
    let from = plan.capabilities.from.as_ref().map_or_else(String::new, |from| format!(" of `{from}`"));
    printable(&format!("  {risk}, granted by `{}`{from}", grant.pattern))
}
