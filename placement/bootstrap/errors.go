package bootstrap

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

var (
	// ErrNotMember matches a NotMemberError.
	ErrNotMember = errors.New("this server is not a member of the core")
	// ErrListChanged matches a ListChangedError.
	ErrListChanged = errors.New("the --core list differs from the members of the core")
	// ErrRefused says that a founding was not accepted.
	ErrRefused = errors.New("the founding is refused")
	// ErrState says that what is on disk cannot be used.
	ErrState = errors.New("the file about the forming of the core is damaged")
)

// NotMemberError says that the core exists already and that this server, by the name in its
// directory, is not part of it.
type NotMemberError struct {
	// Self is the address of this server, Peer that of the member that told.
	Self, Peer string
	Server     uint64
	Founding   *clusterpb.Founding
}

func (e *NotMemberError) Error() string {
	for _, m := range e.Founding.GetMembers() {
		if m.Address == e.Self {
			return fmt.Sprintf("%v of cluster %016x: %s is a member by its address, but not with "+
				"this data directory (its name is %016x, the member's is %016x; %s told so). The "+
				"member's disk was wiped or replaced, and a new one must not vote in its place: "+
				"bring the member's own data directory back, or leave this server off",
				ErrNotMember, e.Founding.Cluster, e.Self, e.Server, m.Server, e.Peer)
		}
	}
	return fmt.Sprintf("%v of cluster %016x, which was formed by %s: %s told so. Give this server "+
		"the --core list of its cluster; members cannot be added to the list of a core that exists",
		ErrNotMember, e.Founding.GetCluster(), addresses(e.Founding), e.Peer)
}

// Is makes errors.Is(err, ErrNotMember) true.
func (e *NotMemberError) Is(target error) bool { return target == ErrNotMember }

// ListChangedError says that a server was started with another list than that with which its core
// was formed.
type ListChangedError struct {
	Self     string
	Core     []string
	Founding *clusterpb.Founding
}

func (e *ListChangedError) Error() string {
	members := memberAddresses(e.Founding)
	return fmt.Sprintf("%v, which was formed as %s: %s. Start %s with the list of old",
		ErrListChanged, addresses(e.Founding),
		difference("this list", e.Core, "the core", members), e.Self)
}

// Is makes errors.Is(err, ErrListChanged) true.
func (e *ListChangedError) Is(target error) bool { return target == ErrListChanged }

func memberAddresses(f *clusterpb.Founding) []string {
	var list []string
	for _, m := range f.GetMembers() {
		list = append(list, m.Address)
	}
	slices.Sort(list)
	return list
}

func addresses(f *clusterpb.Founding) string { return strings.Join(memberAddresses(f), ", ") }

// difference says in words how two lists differ.
func difference(nameA string, a []string, nameB string, b []string) string {
	only := func(x, y []string) []string {
		return slices.DeleteFunc(slices.Clone(x), func(s string) bool { return slices.Contains(y, s) })
	}
	var parts []string
	if extra := only(a, b); len(extra) > 0 {
		parts = append(parts, fmt.Sprintf("only %s has %s", nameA, strings.Join(extra, ", ")))
	}
	if extra := only(b, a); len(extra) > 0 {
		parts = append(parts, fmt.Sprintf("only %s has %s", nameB, strings.Join(extra, ", ")))
	}
	return strings.Join(parts, "; ")
}
