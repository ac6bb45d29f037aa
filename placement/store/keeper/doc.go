// Package keeper renews leases at any member of a store, and on the member that leads ends those
// that ran out. Package lease counts them down; the ends and the grants of leases are commands.
//
// A renewal moves a deadline in the leader's memory. Another member hands its renewals to the
// leader, all that come meanwhile in one question (renewals.go). KeepAliveAll says why a renewal
// that is acknowledged holds, whatever other members have applied by then.
//
// # Locks
//
// Keeper.noting is held from when it is decided what leases have left until that is proposed, so
// that a renewal can wait for it: the Lessor's lock and Core.ProposeAside are taken under it, and
// nothing is waited for. The lock of the renewals that wait is a leaf.
package keeper
