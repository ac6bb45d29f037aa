// Package admission decides which commands the leader may propose. Every member applies every
// command in the log. So the leader checks a command before it proposes it, against its state at
// that time. It refuses a command that would touch too much (weigh.go) or cross the quota
// (quota.go), that an alarm forbids, or that a member may not know (formats.go).
//
// The only lock of a Gate is the ledger's (package space), which is a leaf.
package admission
