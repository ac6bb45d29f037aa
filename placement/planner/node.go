package planner

import (
	"fmt"
	"strconv"
	"time"

	"github.com/tidemarkdb/tidemark/range/keys"
)

// Status is how far a node is on its way out of the cluster. It is set by an operator of the
// cluster, and it says nothing about whether the node answers.
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

func (s Status) String() string { return nameOf(statusNames, int(s)) }

// MarshalText is for JSON.
func (s Status) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

func nameOf(names []string, i int) string {
	if i < 0 || i >= len(names) {
		return strconv.Itoa(i)
	}
	return names[i]
}

// Cores is an amount of processor time per time, in millionths of one processor.
type Cores int64

// Core is one processor, fully used.
const Core Cores = 1_000_000

func (c Cores) String() string {
	return strconv.FormatFloat(float64(c)/float64(Core), 'f', 2, 64) + " cores"
}

// Node is a data node that can be given replicas.
//
// Assign reads ID, Region, Zone, Status and Alive only.
type Node struct {
	ID keys.NodeID
	// Region and Zone say where it is; both may be empty. Zones of the same name in different
	// regions are different.
	Region, Zone string
	// Tags are further labels that placement rules can name, as in "disk=ssd" or "gpu".
	Tags []string
	// Status is the wish of an operator of the cluster.
	Status Status
	// Alive: it answers. Nodes that do not are given nothing.
	Alive bool
	// Since is when Alive last changed, on the core's clock. It has to be stored by the core, so
	// that a new leader of the core does not count the repair delay from the beginning.
	Since time.Time
	// WipedAt is when the node last began with an empty disk under its old id. Its voters that
	// were there before (Replica.Broken) are lost; it is kept for what the planner says of them.
	WipedAt time.Time
	// Displaced: another directory has come to its address, so its own is lost, unless it answers
	// after all. What it holds is replaced after Settings.DisplacedDelay.
	Displaced bool
	// DiskUsed and DiskCapacity are in bytes, as the node reported them. A capacity of 0 is not
	// known: the disk then has room, and counts as large as any other.
	DiskUsed, DiskCapacity int64
	// DiskSlow: its log takes many times longer to sync than those of others. DiskFull: its disk is
	// below its reserve. ClockWrong: its clock is off, or has jumped. Each of them has it leave
	// leadership to others. It is given none, unless its disk is slow and no other node can take it;
	// what it is wanted to lead it gets back by itself.
	DiskSlow, DiskFull, ClockWrong bool
	// Processors is how much processor time the node has. 0 is not known: it counts as as many as
	// any other.
	Processors Cores
	// Load is the processor time that the node reports as used. It is shown beside the load that
	// its replicas account for, and decides nothing: an average over minutes would still hold what
	// has been moved away.
	Load Cores
}

// averse says why a node leaves leadership to others at present, in words; empty: it does not.
func (n *Node) averse() string {
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

// Labels returns what placement rules can ask of the node.
func (n *Node) Labels() Labels { return Labels{Region: n.Region, Zone: n.Zone, Tags: n.Tags} }

// condition is what may be done with a node at one time.
type condition uint8

const (
	// live: it answers.
	live condition = 1 << iota
	// lost: silent for longer than the repair delay, or GONE.
	lost
	// leaving: its replicas go elsewhere.
	leaving
	// drained: it must not lead.
	drained
	// open: it may be given replicas and leaderships.
	open
)

func (c condition) is(all condition) bool { return c&all == all }

// conditionOf judges a node. It is a function of the node and the time only.
func conditionOf(n *Node, now time.Time, s *Settings) condition {
	var c condition
	switch n.Status {
	case Gone:
		return lost | leaving | drained
	case Moving:
		c |= leaving | drained
	case Draining:
		c |= drained
	case Active:
	}
	since := now.Sub(n.Since)
	switch {
	case n.Alive:
		if c |= live; c == live && since >= s.Settle {
			c |= open
		}
	case since >= s.RepairDelay, n.Displaced && since >= s.DisplacedDelay:
		c |= lost
	}
	return c
}

// validate says what makes no sense of a node.
func (n *Node) validate() error {
	if n.ID == 0 || n.DiskUsed < 0 || n.DiskCapacity < 0 || n.Processors < 0 || n.Load < 0 {
		return fmt.Errorf("node %s: a figure is negative, or it has no id", n.ID)
	}
	return nil
}

// place names zone and region for people.
func place(region, zone string) string {
	switch {
	case zone == "" && region == "":
		return "an unnamed zone"
	case region == "":
		return "zone " + zone
	case zone == "":
		return "region " + region
	}
	return fmt.Sprintf("zone %s/%s", region, zone)
}
