package main

import (
	"context"
	"fmt"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/fleet"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// placement is where the probes' partitions are: of each hash number the one with the probe's key.
type placement struct {
	// voters are the servers with a replica of each partition, leader the one that leads it, -1 if
	// none is known.
	voters [][]int
	leader []int
}

// where asks the cluster, which must be whole.
func (w *world) where(ctx context.Context) (*placement, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	nodes, err := w.admin.NodeOf(ctx)
	if err != nil {
		return nil, err
	}
	infos, err := w.admin.Partitions(ctx, probeKeyspace)
	if err != nil {
		return nil, err
	}
	index := make(map[uint64]int)
	for id, server := range nodes {
		for i, s := range w.servers {
			if s == server {
				index[id] = i
			}
		}
	}
	p := &placement{voters: make([][]int, probePartitions), leader: make([]int, probePartitions)}
	probed := fleet.PartitionKeys(probePartitions)
	for _, info := range infos {
		hash := int(info.Partition.Hash)
		if hash < probePartitions && !keys.PartitionContains(info.Partition, []byte(probed[hash])) {
			continue // it has split
		}
		if hash >= probePartitions {
			return nil, fmt.Errorf("a partition of %s with number %d, which has %d", probeKeyspace,
				hash, probePartitions)
		}
		for _, r := range info.Partition.Replicas {
			server, ok := index[r.Node]
			if !ok {
				return nil, fmt.Errorf("partition %d has a replica on node %d, which is not "+
					"registered", info.Partition.Id, r.Node)
			}
			p.voters[hash] = append(p.voters[hash], server)
		}
		p.leader[hash] = -1
		if server, ok := index[info.LeaderNode]; ok {
			p.leader[hash] = server
		}
	}
	return p, nil
}

// leaders lists the servers that lead partitions, each as often as it does; any node if none is
// known to lead.
func (p *placement) leaders() []int {
	var list []int
	for _, server := range p.leader {
		if server >= 0 {
			list = append(list, server)
		}
	}
	if len(list) == 0 {
		list = append(list, cores)
	}
	return list
}

// serves says of each partition whether it can serve while the effect lasts.
func (p *placement) serves(e effect) []bool {
	list := make([]bool, len(p.voters))
	for i, voters := range p.voters {
		list[i] = e.serves(voters)
	}
	return list
}
