// Package versions knows which versions the members of the core run.
//
// Members ask one another what their versions support (versions.go). Commands of a format are used
// only when all members, and a newcomer, are known to support the format (newcomer.go). Versions
// owns a lock. While it is held, only MembersKnow and Members of the stores are called.
//
// The package must not import package membership, which uses it.
package versions
