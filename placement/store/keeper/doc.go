// Package keeper renews leases at any member of a store, and on the leader ends expired leases.
// Package lease counts leases down; grants and ends of leases are commands.
//
// A renewal moves a deadline in the leader's memory. Other members forward renewals to the leader;
// renewals that arrive while a request is running share the next request (renewals.go).
// KeepAliveAll explains why an acknowledged renewal holds, whatever other members have applied.
//
// # Locks
//
// Keeper.noting is held from the computation of leases' remaining times until these checkpoints are
// proposed, so that a renewal can wait for the proposal. Under it the Lessor's lock is taken and
// Core.ProposeAside is called, and neither blocks. The lock of the waiting renewals is a leaf.
package keeper
