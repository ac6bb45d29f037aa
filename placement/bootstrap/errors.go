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
	// ErrRefused says that a founding was not accepted.
	ErrRefused = errors.New("the founding is refused")
	// ErrState says that the file on disk is unusable.
	ErrState = errors.New("the file about the forming of the core is damaged")
)

// NotMemberError says that a core exists already and that this server, by the name in its
// directory, is not a member.
type NotMemberError struct {
	// Self is the address of this server, Peer that of the member that said so.
	Self, Peer string
	Server     uint64
	Founding   *clusterpb.Founding
}

func (e *NotMemberError) Error() string {
	for _, m := range e.Founding.GetMembers() {
		if m.Address == e.Self {
			return fmt.Sprintf("%v of cluster %016x: %s is a member by its address, but not with "+
				"this data directory (its name is %016x, the member's is %016x; %s told so). Bring the "+
				"member's own data directory back, or have this one take its place: `tidemark core "+
				"replace %s %s`", ErrNotMember, e.Founding.Cluster, e.Self, e.Server, m.Server, e.Peer,
				e.Self, e.Self)
		}
	}
	return fmt.Sprintf("%v of cluster %016x yet, which is made up of %s: %s told so. Add it: "+
		"`tidemark core add %s`", ErrNotMember, e.Founding.GetCluster(), addresses(e.Founding),
		e.Peer, e.Self)
}

// Is makes errors.Is(err, ErrNotMember) true.
func (e *NotMemberError) Is(target error) bool { return target == ErrNotMember }

func memberAddresses(f *clusterpb.Founding) []string {
	var list []string
	for _, m := range f.GetMembers() {
		list = append(list, m.Address)
	}
	slices.Sort(list)
	return list
}

func addresses(f *clusterpb.Founding) string { return strings.Join(memberAddresses(f), ", ") }

// difference describes how two lists differ.
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
