package main

import (
	"context"
	"fmt"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/fleet"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// placement says where the partitions of the probes are. For each hash number it has the partition
// with the probe's key.
type placement struct {
	// voters has the servers with a replica of each partition. leader has the server that leads each
	// partition, or -1 if no leader is known.
	voters [][]int
	leader []int
}

// where asks the cluster for the placement. The cluster must be whole.
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
			continue // the partition has split
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

// leaders lists the servers that lead partitions. A server is in the list once for each partition
// that it leads. If no leader is known, the list has one data node.
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

// serves reports for each partition whether it can serve during the effect.
func (p *placement) serves(e effect) []bool {
	list := make([]bool, len(p.voters))
	for i, voters := range p.voters {
		list[i] = e.serves(voters)
	}
	return list
}
