// Package admission decides which commands the leader may propose. A command that is in the log is
// applied by every member, whatever it asks for. So a command that would do too much (weigh.go) or
// cross the quota (quota.go), that an alarm forbids, or that a member may not know (formats.go) is
// refused before, by the leader's state at that time.
//
// A Gate has no lock of its own beside that of the ledger (package space), which is a leaf.
package admission
