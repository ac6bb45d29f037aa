package recovery

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// MembershipStep is the least amount by which a recovered partition's membership and replica id are
// above all that the survivors have heard of: the lost replicas may have been ahead of them.
const MembershipStep = 1000

// ErrNothing is returned if no partition has lost its majority.
var ErrNothing = errors.New("there is nothing to recover")

// Plan says which partitions continue from which replica.
type Plan struct {
	Format  int    `json:"format"`
	ID      string `json:"id"`
	Cluster string `json:"cluster"`
	Created string `json:"created"`
	// Lost are the nodes that are given up for good, Survivors those with a survey.
	Lost      []uint64   `json:"lost"`
	Survivors []uint64   `json:"survivors"`
	Recovered []Recovery `json:"recovered"`
	// Gone are partitions that have no replica left.
	Gone []Partition `json:"gone"`
	// Healthy counts the partitions that need no recovery.
	Healthy int `json:"healthy"`
	// Checksum covers all other fields.
	Checksum string `json:"checksum"`
}

// Recovery says how one partition continues.
type Recovery struct {
	Partition uint64 `json:"partition"`
	Keyspace  uint32 `json:"keyspace"`
	Span      string `json:"span"`
	// Node has the replica that continues. Its id is Replica from then on.
	Node       uint64 `json:"node"`
	OldReplica uint64 `json:"old_replica"`
	Replica    uint64 `json:"replica"`
	// Membership is the partition's membership from then on.
	Membership uint64 `json:"membership"`
	// Known is the highest membership that any survivor has heard of.
	Known uint64 `json:"known_membership"`
	// Before are its members as the survivors know them.
	Before []Member `json:"before"`
	// Others are replicas on surviving nodes that do not continue.
	Others []Other `json:"others,omitempty"`
	// Digest is that of the chosen replica at the time of the survey.
	Digest    string `json:"digest"`
	LastIndex uint64 `json:"last_index"`
	LastTerm  uint64 `json:"last_term"`
	Committed uint64 `json:"committed"`
	LiveKeys  uint64 `json:"live_keys"`
	// MayLack is set if acknowledged writes may be missing. Otherwise every acknowledged write is
	// on a survivor, if the survivors know of all changes of the replicas.
	MayLack bool `json:"may_lack"`
	// Notes are further things to know, a sentence each.
	Notes []string `json:"notes,omitempty"`
}

// Other is a replica that does not continue.
type Other struct {
	Node      uint64 `json:"node"`
	Replica   uint64 `json:"replica"`
	Digest    string `json:"digest"`
	LastIndex uint64 `json:"last_index"`
	LastTerm  uint64 `json:"last_term"`
}

// Make makes the plan. id is random, created is the time. Errors say which nodes are missing, or
// what does not belong together; ErrNothing says that no partition needs recovery.
func Make(surveys []*Survey, lost []uint64, id, created string) (*Plan, error) {
	lost = slices.Clone(lost)
	slices.Sort(lost)
	lost = slices.Compact(lost)
	p := &Plan{Format: Format, ID: id, Created: created, Lost: lost}
	if err := p.survivors(surveys); err != nil {
		return nil, err
	}
	for _, x := range gather(surveys) {
		p.consider(x)
	}
	if len(p.Recovered)+len(p.Gone) == 0 {
		return nil, fmt.Errorf("%w: without nodes %v each of the %d partitions still has a majority "+
			"of its replicas", ErrNothing, lost, p.Healthy)
	}
	p.Checksum = p.sum()
	return p, nil
}

// survivors checks that the surveys are of all nodes that are not lost, one each.
func (p *Plan) survivors(surveys []*Survey) error {
	if len(surveys) == 0 || len(p.Lost) == 0 {
		return errors.New("a plan needs the surviving nodes, and those that are lost")
	}
	servers := map[string]uint64{}
	known := map[uint64]bool{}
	for _, s := range surveys {
		switch {
		case s.Format != Format:
			return fmt.Errorf("the survey of node %d has format %d, this program knows %d", s.Node,
				s.Format, Format)
		case s.Cluster != surveys[0].Cluster:
			return fmt.Errorf("node %d is of cluster %s, and node %d of %s", s.Node, s.Cluster,
				surveys[0].Node, surveys[0].Cluster)
		case slices.Contains(p.Lost, s.Node):
			return fmt.Errorf("node %d is named as lost, and its directory is here: leave out the one "+
				"or the other", s.Node)
		case slices.Contains(p.Survivors, s.Node) || servers[s.Server] != 0:
			return fmt.Errorf("there are two surveys of node %d", s.Node)
		}
		servers[s.Server] = s.Node
		p.Survivors = append(p.Survivors, s.Node)
		for _, n := range s.Nodes {
			known[n] = true
		}
	}
	p.Cluster = surveys[0].Cluster
	slices.Sort(p.Survivors)
	var missing, unknown []uint64
	for n := range known {
		if !slices.Contains(p.Lost, n) && !slices.Contains(p.Survivors, n) {
			missing = append(missing, n)
		}
	}
	for _, n := range p.Lost {
		if !known[n] {
			unknown = append(unknown, n)
		}
	}
	slices.Sort(missing)
	switch {
	case len(missing) > 0:
		return fmt.Errorf("nodes %v are not lost, and nothing is known of what they have: add their "+
			"directories or surveys, or name them as lost too; one of them may have what the others lack",
			missing)
	case len(unknown) > 0:
		return fmt.Errorf("no survivor knows of nodes %v, which are named as lost", unknown)
	}
	return nil
}

// found is what the surveys contain about one partition.
type found struct {
	// latest is the descriptor with the highest epoch, and committed the one that is known to be
	// committed: a replica starts with it, or a table has it.
	latest, committed Partition
	// listed is set if latest comes from a table, and no replica has it.
	listed bool
	// membership and next are above all memberships and replica ids that were heard of.
	membership, next uint64
	replicas         []candidate
}

type candidate struct {
	Replica
	node uint64
}

// gather sorts the surveys by partition.
func gather(surveys []*Survey) []*found {
	all := map[uint64]*found{}
	note := func(p Partition, listed bool) *found {
		f := all[p.Partition]
		if f == nil {
			f = &found{latest: p, listed: listed}
			all[p.Partition] = f
		}
		if c := compareEpochs(p, f.latest); c > 0 || c == 0 && !listed {
			f.latest, f.listed = p, listed
		}
		f.membership = max(f.membership, p.Membership)
		f.next = max(f.next, p.NextReplica)
		return f
	}
	known := func(p Partition) {
		f := all[p.Partition]
		if len(f.committed.Members) == 0 || compareEpochs(p, f.committed) > 0 {
			f.committed = p
		}
	}
	for _, s := range surveys {
		for _, p := range s.Table {
			note(p, true)
			known(p)
		}
	}
	for _, s := range surveys {
		for _, r := range s.Replicas {
			d := r.Descriptor
			if d.Partition == 0 { // the descriptor could not be read
				if f := all[r.Partition]; f != nil {
					f.replicas = append(f.replicas, candidate{r, s.Node})
				}
				continue
			}
			f := note(d, false)
			if r.Known != nil {
				known(*r.Known)
			} else {
				known(d)
			}
			f.next = max(f.next, r.Replica+1)
			f.replicas = append(f.replicas, candidate{r, s.Node})
		}
	}
	sorted := make([]*found, 0, len(all))
	for _, f := range all {
		sorted = append(sorted, f)
	}
	slices.SortFunc(sorted, func(a, b *found) int {
		return cmp.Compare(a.latest.Partition, b.latest.Partition)
	})
	return sorted
}

// compareEpochs compares two descriptors of a partition.
func compareEpochs(a, b Partition) int {
	return cmp.Or(cmp.Compare(a.Generation, b.Generation), cmp.Compare(a.Membership, b.Membership))
}

// consider decides about one partition. If the latest change of its replicas may be committed or
// not, the partition goes on by itself only if the replicas before and after the change have a
// quorum each, and all of them count.
func (p *Plan) consider(f *found) {
	c, before := f.latest.configuration(), f.committed.configuration()
	role := func(r candidate) group.Role {
		id := keys.ReplicaID(r.Replica.Replica)
		return cmp.Or(c.Role(id), before.Role(id))
	}
	var usable []candidate
	var notes []string
	for _, r := range f.replicas {
		switch {
		case r.Broken != "":
			notes = append(notes, fmt.Sprintf("the replica on node %d is of no use: %s",
				r.node, r.Broken))
		case role(r) == 0:
			notes = append(notes, fmt.Sprintf("the replica on node %d was taken out before, and does "+
				"not count", r.node))
		default:
			usable = append(usable, r)
		}
	}
	here := func(id keys.ReplicaID) bool {
		return slices.ContainsFunc(usable,
			func(r candidate) bool { return keys.ReplicaID(r.Replica.Replica) == id })
	}
	switch {
	case c.Quorum(here) && before.Quorum(here):
		p.Healthy++
		return
	case len(usable) == 0:
		p.Gone = append(p.Gone, f.latest)
		return
	}
	slices.SortFunc(usable, func(a, b candidate) int {
		return cmp.Or(-cmp.Compare(a.LastTerm, b.LastTerm), -cmp.Compare(a.LastIndex, b.LastIndex),
			cmp.Compare(role(a), role(b)), cmp.Compare(a.node, b.node))
	})
	best := usable[0]
	away := func(id keys.ReplicaID) bool { return !here(id) }
	r := Recovery{Partition: f.latest.Partition, Keyspace: f.latest.Keyspace, Span: f.latest.Span,
		Node: best.node, OldReplica: best.Replica.Replica, Replica: f.next + MembershipStep,
		Membership: f.membership + MembershipStep, Known: f.membership, Before: f.latest.Members,
		Digest: best.Digest, LastIndex: best.LastIndex, LastTerm: best.LastTerm,
		Committed: best.Committed, LiveKeys: best.LiveKeys, Notes: notes,
		// A majority has what was acknowledged. If the lost replicas are no quorum, a survivor has
		// it.
		MayLack: f.listed || c.Quorum(away) || before.Quorum(away),
	}
	if f.listed {
		r.Notes = append(r.Notes,
			"the core had listed a later change of its replicas than any survivor has applied")
	}
	for _, o := range usable[1:] {
		r.Others = append(r.Others, Other{Node: o.node, Replica: o.Replica.Replica, Digest: o.Digest,
			LastIndex: o.LastIndex, LastTerm: o.LastTerm})
	}
	p.Recovered = append(p.Recovered, r)
}

// sum is the checksum.
func (p *Plan) sum() string {
	plain := *p
	plain.Checksum = ""
	b, err := json.Marshal(&plain)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// Check returns why a plan that was read cannot be used; nil if it can.
func (p *Plan) Check() error {
	switch {
	case p.Format != Format:
		return fmt.Errorf("the plan has format %d, this program knows %d", p.Format, Format)
	case p.ID == "" || p.Checksum != p.sum():
		return errors.New("the plan's checksum is wrong: it was changed, or is not complete; " +
			"make it anew")
	}
	return nil
}

// Lacking returns how many partitions may lack acknowledged writes.
func (p *Plan) Lacking() (n int) {
	for i := range p.Recovered {
		if p.Recovered[i].MayLack {
			n++
		}
	}
	return n
}

// Warning explains, for operators, what the plan costs.
func (p *Plan) Warning() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Nodes %v are given up for good. Keep their machines and directories switched "+
		"off: if two of them meet, they can go on as the former majority, and only the core keeps "+
		"them out.\n",
		p.Lost)
	if n := p.Lacking(); n > 0 {
		fmt.Fprintf(&b, "%d of %d partitions may lack writes that were acknowledged shortly before "+
			"the nodes were lost, and may have some whose clients were told nothing. How many cannot be "+
			"known. A transaction over several of them may be there in part.\n", n, len(p.Recovered))
	} else if len(p.Recovered) > 0 {
		b.WriteString("No acknowledged write is missing, as far as the survivors know of all changes " +
			"of replicas.\n")
	}
	if len(p.Gone) > 0 {
		fmt.Fprintf(&b, "%d partitions have no replica left. They are not recovered: what they held "+
			"has to come from a dump.\n", len(p.Gone))
	}
	return b.String()
}
