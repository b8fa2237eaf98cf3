//! A line of an approval request: the risk of the call, and the grant that allows the call.

use rye_compiler::semantics::capability::pattern_matches;
use rye_compiler::semantics::risk::RiskTable;
use rye_engine::engine::ApprovalRequest;

use crate::report::printable;

/// Formats the risk tier of a capability, the grant that allows it, and the directive that declares the grant. If no
/// grant of the thread matches, the line contains only the risk tier.
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
