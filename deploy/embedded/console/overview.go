package console

import (
	"context"
	"fmt"
	"net/url"
	"strconv"

	"github.com/tidemarkdb/tidemark/kv/admin"
	"github.com/tidemarkdb/tidemark/kv/admin/health"
)

// overview is the feed "cluster": a summary of the cluster, and its nodes.
type overview struct {
	Cluster string `json:"cluster"`
	Ready   bool   `json:"ready"`
	// WaitingFor says what the server that was asked waits for.
	WaitingFor string `json:"waitingFor,omitempty"`
	CoreLeader string `json:"coreLeader,omitempty"`
	// Unknown says which data could not be read, and why. It is empty if all could be read.
	Unknown  string    `json:"unknown,omitempty"`
	Problems []problem `json:"problems"`
	Paused   bool      `json:"paused"`

	Nodes      []nodeView   `json:"nodes"`
	Core       []memberView `json:"core"`
	Keyspaces  int          `json:"keyspaces"`
	Partitions int          `json:"partitions"`
	Operators  int          `json:"operators"`
	// Rates are the sums over all partitions.
	Rates   rates        `json:"rates"`
	Release upgradeView  `json:"release"`
	Servers []DemoServer `json:"servers,omitempty"`
	Load    *DemoLoad    `json:"load,omitempty"`
}

// problem is a problem of the cluster.
type problem struct {
	// Kind has the same values as in `tidemark status`: "unavailable", "under replicated" and so on.
	Kind string `json:"kind"`
	Text string `json:"text"`
	// Bad: something cannot be used. If it is not set, everything is served.
	Bad bool `json:"bad"`
}

// rates are requests and bytes per second, over the last minute.
type rates struct {
	Reads        uint64 `json:"reads"`
	Writes       uint64 `json:"writes"`
	ReadBytes    uint64 `json:"readBytes"`
	WrittenBytes uint64 `json:"writtenBytes"`
	// Load is the cost on the leading node, in processors.
	Load float64 `json:"load"`
}

func (r *rates) add(a admin.PartitionActivity) {
	r.Reads += a.Reads
	r.Writes += a.Writes
	r.ReadBytes += a.ReadBytes
	r.WrittenBytes += a.WrittenBytes
	r.Load += a.Load
}

type nodeView struct {
	ID      uint64 `json:"id"`
	Address string `json:"address"`
	Region  string `json:"region,omitempty"`
	Zone    string `json:"zone,omitempty"`
	Version string `json:"version"`
	Alive   bool   `json:"alive"`
	Status  string `json:"status"`
	// SilentSeconds is the time since a node that is down was last heard.
	SilentSeconds int64    `json:"silentSeconds,omitempty"`
	Started       int64    `json:"started,omitempty"` // Unix milliseconds
	Tags          []string `json:"tags,omitempty"`
	Replicas      int      `json:"replicas"`
	Leaders       int      `json:"leaders"`
	DiskUsed      uint64   `json:"diskUsed"`
	DiskFree      uint64   `json:"diskFree"`
	DiskFull      bool     `json:"diskFull,omitempty"`
	DiskSlow      bool     `json:"diskSlow,omitempty"`
	// SyncMicros is the duration of a sync of the log. It is 0 if it is not known.
	SyncMicros int64    `json:"syncMicros,omitempty"`
	ClockWrong bool     `json:"clockWrong,omitempty"`
	Failed     uint64   `json:"failed,omitempty"`
	NotReady   []string `json:"notReady,omitempty"`
	Rates      rates    `json:"rates"`
}

type memberView struct {
	ID       uint64 `json:"id"`
	Address  string `json:"address"`
	Role     string `json:"role"`
	Leader   bool   `json:"leader"`
	Answers  bool   `json:"answers"`
	Keeps    bool   `json:"leadsCoordination"`
	Behind   uint64 `json:"behind"`
	Snapshot bool   `json:"snapshot,omitempty"`
	// SyncMicros is the duration of a sync of the member's log. It is 0 if it is not known.
	SyncMicros int64 `json:"syncMicros,omitempty"`
}

// upgradeView describes the release that the cluster runs.
type upgradeView struct {
	Release string `json:"release"`
	// Target is the release to which the cluster can be raised, or empty.
	Target string `json:"target,omitempty"`
	// Obstacles are the reasons why the cluster cannot be raised yet.
	Obstacles []string `json:"obstacles,omitempty"`
}

func (c *Console) overview(ctx context.Context, v *viewer, cluster Cluster, _ url.Values) (any,
	error) {
	status, err := cluster.Status(ctx)
	if err != nil {
		return nil, err
	}
	o := &overview{Cluster: fmt.Sprintf("%016x", status.Cluster), Ready: status.Ready,
		WaitingFor: status.WaitingFor, CoreLeader: status.CoreLeader, Problems: []problem{},
		Nodes: []nodeView{}, Core: []memberView{}}
	if demo := c.config.Demo; demo != nil {
		o.Servers = demo.Servers()
		o.Load = new(demo.Load())
	}
	found := health.OfStatus(status)
	if err := o.ask(ctx, v, cluster, status, &found); err != nil {
		// The core does not answer. The knowledge of a single server is even more important then.
		o.Unknown = sentence(err)
	}
	o.list(&found)
	return o, nil
}

// ask asks the core. found is replaced when all data is known.
func (o *overview) ask(ctx context.Context, v *viewer, cluster Cluster, status admin.Status,
	found *health.Problems) error {
	nodes, err := v.known.nodes.get(ctx, nodesAge, cluster.Nodes)
	if err != nil {
		return err
	}
	for _, n := range nodes {
		if n.Status != admin.NodeGone {
			o.Nodes = append(o.Nodes, nodeOf(n))
		}
	}
	partitions, err := v.partitions(ctx, cluster)
	if err != nil {
		return err
	}
	o.Partitions = len(partitions)
	o.measure(partitions)
	core, err := v.known.core.get(ctx, coreAge, cluster.CoreHealth)
	if err != nil {
		return err
	}
	for _, m := range core.Members {
		o.Core = append(o.Core, memberOf(m))
	}
	judged := append([]admin.NodeInfo(nil), nodes...)
	for i := range judged {
		if judged[i].ID == status.Node && !status.Ready {
			judged[i].NotReady = nil // WaitingFor says it already
		}
	}
	*found, _ = health.Judge(judged, partitions, core)
	keyspaces, err := cluster.Keyspaces(ctx)
	if err != nil {
		return err
	}
	o.Keyspaces = len(keyspaces)
	operators, err := cluster.Operators(ctx)
	if err != nil {
		return err
	}
	o.Operators = len(operators)
	// Some users are not permitted to read these two.
	if settings, err := v.known.placement.get(ctx, coreAge, cluster.Placement); err == nil {
		o.Paused = settings.Paused
	}
	if up, err := v.known.upgrade.get(ctx, slowlyAge, cluster.Upgrade); err == nil {
		o.Release.Release = up.Release
		if up.Target > up.Level {
			o.Release.Target = up.TargetRelease
			for _, s := range up.Servers {
				if s.Obstacle != "" {
					o.Release.Obstacles = append(o.Release.Obstacles, s.Address+": "+s.Obstacle)
				}
			}
		}
	}
	return nil
}

// measure adds up the load of all partitions, in total and by leading node.
func (o *overview) measure(partitions []admin.PartitionInfo) {
	at := map[uint64]*rates{}
	for i := range o.Nodes {
		at[o.Nodes[i].ID] = &o.Nodes[i].Rates
	}
	for i := range partitions {
		p := &partitions[i]
		o.Rates.add(p.Minute)
		if r := at[p.Leader]; r != nil {
			r.add(p.Minute)
		}
	}
}

func (o *overview) list(found *health.Problems) {
	for _, kind := range []struct {
		name string
		list *health.List
		bad  bool
	}{{"unavailable", &found.Unavailable, true}, {"under replicated", &found.UnderReplicated, false},
		{"full", &found.Full, false}, {"unhealthy", &found.Unhealthy, false},
		{"core at risk", &found.Core, false}, {"cut off", &found.Links, false}} {
		for _, text := range kind.list.Lines() {
			o.Problems = append(o.Problems, problem{kind.name, text, kind.bad})
		}
	}
}

func nodeOf(n admin.NodeInfo) nodeView {
	view := nodeView{ID: n.ID, Address: n.Address, Region: n.Region, Zone: n.Zone,
		Version: n.Version, Alive: n.Alive, Status: string(n.Status), Tags: n.Tags,
		Replicas: n.Replicas, Leaders: n.Leaders, DiskUsed: n.DiskUsed, DiskFree: n.DiskFree,
		DiskFull: n.DiskFull, DiskSlow: n.DiskSlow, SyncMicros: n.LogSync.Microseconds(),
		ClockWrong: n.ClockUnhealthy, Failed: n.FailedReplicas, NotReady: n.NotReady,
		Started: unixMillis(n.Started)}
	if !n.Alive {
		view.SilentSeconds = int64(n.SilentFor.Seconds())
	}
	return view
}

func memberOf(m admin.CoreMemberInfo) memberView {
	view := memberView{ID: m.ID, Address: m.Address, Role: m.Role, Leader: m.Leader,
		Answers: m.Answers, Keeps: m.LeadsCoordination, Behind: m.Behind, Snapshot: m.Snapshot}
	if m.Health != nil {
		view.SyncMicros = m.Health.LogSync.Microseconds()
	}
	return view
}

// keyText formats a key for people: printable text is shown unchanged, and other keys with escapes.
// Long keys are cut.
func keyText(key []byte) string {
	const longest = 120
	cut := ""
	if len(key) > longest {
		key, cut = key[:longest], "…"
	}
	quoted := strconv.Quote(string(key))
	return quoted[1:len(quoted)-1] + cut
}
