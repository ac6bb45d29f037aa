package planner

import (
	"fmt"
	"strconv"
	"time"

	"github.com/tidemarkdb/tidemark/placement/planner/rules"
	"github.com/tidemarkdb/tidemark/placement/planner/words"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// Status is how far a node is on its way out of the cluster. An administrator sets it. It says
// nothing about whether the node answers.
type Status uint8

const (
	// Active nodes hold replicas and lead.
	Active Status = iota
	// Draining nodes keep their replicas, lead nothing and get nothing new.
	Draining
	// Moving nodes are being decommissioned: their replicas go elsewhere.
	Moving
	// Gone nodes never come back. A replica that still names one is lost.
	Gone
)

var statusNames = []string{"ACTIVE", "DRAINING", "MOVING", "GONE"}

func (s Status) String() string { return words.Name(statusNames, int(s)) }

// MarshalText writes the name, for JSON.
func (s Status) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Cores is a rate of processor time, in millionths of one processor.
type Cores int64

// Core is one processor in full use.
const Core Cores = 1_000_000

func (c Cores) String() string {
	return strconv.FormatFloat(float64(c)/float64(Core), 'f', 2, 64) + " cores"
}

// Node is what the planner is told of a data node. Package assign reads ID, Region, Zone, Tags,
// Status and Alive only.
type Node struct {
	ID keys.NodeID
	// Region and Zone say where the node is; both may be empty. Zones of the same name in different
	// regions are different zones.
	Region, Zone string
	// Tags are further labels that placement rules can name, as in "disk=ssd" or "gpu".
	Tags []string
	// Status is what an administrator wants of the node.
	Status Status
	// Alive: the node answers. A node that does not answer is given nothing.
	Alive bool
	// Since is when Alive last changed, by the clock of the core. The core has to store it, or a new
	// leader of the core would count the repair delay from the beginning.
	Since time.Time
	// WipedAt is when the node last began with an empty disk under its old id. It is for texts only:
	// voters that were on the node before are told as Broken.
	WipedAt time.Time
	// Displaced: another directory answers at the address of the node, so that the directory of the
	// node is lost, unless it answers after all. Its replicas are replaced after
	// Settings.DisplacedDelay.
	Displaced bool
	// DiskUsed and DiskCapacity are in bytes, as the node reported them. A capacity of 0 is not
	// known: the disk has room then, and counts as large as any other.
	DiskUsed, DiskCapacity int64
	// DiskSlow: the log of the node takes many times longer to sync than those of other nodes.
	// DiskFull: the disk has less room than its reserve. ClockWrong: the clock is off, or has jumped.
	// For each of these the node leaves leadership to others. It is given no leadership, unless only
	// its disk is slow and no other node can lead. Partitions that it is wanted to lead come back to
	// it by themselves.
	DiskSlow, DiskFull, ClockWrong bool
	// Processors is how much processor time the node has. 0 is not known: the node then counts like
	// any other.
	Processors Cores
	// Load is the processor time that the node reports as used. It is shown beside the load of the
	// replicas, and decides nothing: an average over minutes still has the load of replicas that have
	// moved away.
	Load Cores
}

// Labels returns the properties of the node that placement rules can name.
func (n *Node) Labels() rules.Labels {
	return rules.Labels{Region: n.Region, Zone: n.Zone, Tags: n.Tags}
}

// AvoidsLeading says why the node leaves leadership to others at present; empty: it does not.
func (n *Node) AvoidsLeading() string {
	switch {
	case n.ClockWrong:
		return "its clock is wrong"
	case n.DiskFull:
		return "its disk is full"
	case n.DiskSlow:
		return "its disk is slow"
	}
	return ""
}

// Validate fails if the node has no id or a negative figure.
func (n *Node) Validate() error {
	if n.ID == 0 || n.DiskUsed < 0 || n.DiskCapacity < 0 || n.Processors < 0 || n.Load < 0 {
		return fmt.Errorf("node %s: a figure is negative, or it has no id", n.ID)
	}
	return nil
}
