// Package coreaddr knows at which addresses the members of the core are (Book). It merges three
// sources, none of which always knows: the record of the store, the leader's answers, and what
// members say of themselves. A Book has its own lock, and calls the stores under the lock.
package coreaddr
