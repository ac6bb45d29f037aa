package console

import (
	"context"
	"net/http"
	"net/url"
	"regexp"
	"strconv"

	"github.com/tidemarkdb/tidemark/kv/admin"
)

// placementView is the feed "placement".
type placementView struct {
	Paused bool `json:"paused"`
	// Settings: the settings are known, and the caller may see them.
	Settings          bool           `json:"settings"`
	MostOperators     int            `json:"mostOperators,omitempty"`
	RepairSeconds     int64          `json:"repairSeconds,omitempty"`
	SnapshotsOfNode   int            `json:"snapshotsOfNode,omitempty"`
	Operators         []operatorView `json:"operators"`
	OperatorsNotShown int            `json:"operatorsNotShown,omitempty"`
}

type operatorView struct {
	ID        uint64 `json:"id"`
	Partition uint64 `json:"partition"`
	Keyspace  string `json:"keyspace"`
	Kind      string `json:"kind"`
	From      uint64 `json:"from,omitempty"`
	To        uint64 `json:"to,omitempty"`
	Leader    uint64 `json:"leader,omitempty"`
	Bytes     uint64 `json:"bytes,omitempty"`
	Reason    string `json:"reason"`
	Step      string `json:"step"`
	WaitsFor  string `json:"waitsFor,omitempty"`
	Seconds   int64  `json:"seconds"`
	Cancelled bool   `json:"cancelled,omitempty"`
}

// listOperators reads the operators under way.
func listOperators(ctx context.Context, v *viewer, cluster Cluster, _ url.Values) (any, error) {
	operators, err := cluster.Operators(ctx)
	if err != nil {
		return nil, err
	}
	view := placementView{Operators: []operatorView{}}
	for _, o := range operators[:min(len(operators), listed)] {
		view.Operators = append(view.Operators, operatorView{ID: o.ID, Partition: o.Partition,
			Keyspace: o.Keyspace, Kind: o.Kind, From: o.From, To: o.To, Leader: o.Leader,
			Bytes: o.Bytes, Reason: o.Reason, Step: o.Step, WaitsFor: o.WaitsFor,
			Seconds: int64(o.Age.Seconds()), Cancelled: o.Cancelled})
	}
	view.OperatorsNotShown = len(operators) - len(view.Operators)
	// Some users are not permitted to read the settings.
	if s, err := v.known.placement.get(ctx, coreAge, cluster.Placement); err == nil {
		view.Settings, view.Paused, view.MostOperators = true, s.Paused, s.Operators
		view.RepairSeconds = int64(s.RepairDelay.Seconds())
		view.SnapshotsOfNode = s.NodeSnapshots
	}
	return view, nil
}

// numbered matches a partition or a node in the form of explanations.
var numbered = regexp.MustCompile(`^([pn]?)([0-9]{1,18})$`)

// why explains the object in the parameter "of": 17 or p17 is a partition, n3 is a node, and
// anything else is a keyspace.
func (c *Console) why(w http.ResponseWriter, r *http.Request, v *viewer) {
	of := r.URL.Query().Get("of")
	if of == "" || len(of) > maxFeedName {
		refuse(w, http.StatusBadRequest,
			"say what is to be explained: a partition (17), a node (n3) or a keyspace (its name)")
		return
	}
	c.finish(w, r, func(ctx context.Context) (any, error) {
		defer v.hold()()
		cluster, err := v.ask(ctx)
		if err != nil {
			return nil, err
		}
		explanation, err := explain(ctx, cluster, of)
		return struct {
			Text string `json:"text"`
		}{explanation.Text}, err
	})
}

func explain(ctx context.Context, cluster Cluster, of string) (admin.Explanation, error) {
	found := numbered.FindStringSubmatch(of)
	if found == nil {
		return cluster.WhyKeyspace(ctx, of)
	}
	id, err := strconv.ParseUint(found[2], 10, 64)
	if err != nil {
		return admin.Explanation{}, err
	}
	if found[1] == "n" {
		return cluster.WhyNode(ctx, id)
	}
	return cluster.WhyPartition(ctx, id)
}
