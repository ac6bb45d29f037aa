// Package keeper renews leases at any member of a store, and on the leader ends those that ran out.
// Package lease counts them down; the ends and the grants of leases are commands.
//
// A renewal moves a deadline in the leader's memory. Other members forward their renewals to the
// leader, all that come meanwhile in one question (renewals.go). KeepAliveAll says why an
// acknowledged renewal holds, whatever other members have applied by then.
//
// # Locks
//
// Keeper.noting is held from the decision how much leases have left until that is proposed, so that
// a renewal can wait for it: the Lessor's lock and Core.ProposeAside are taken under it, and
// nothing is waited for. The lock of the renewals that wait is a leaf.
package keeper
