package state

// Location is a zone or a region, and what is in flight to and from its nodes.
type Location struct {
	Region, Name string
	// open is how many of its nodes are open.
	open               int
	Receiving, Sending int
}

// locations are the zones and regions of the nodes that were ever told of.
type locations struct {
	Zones, Regions []Location
	zoneIndex      map[[2]string]uint16
	regionIndex    map[string]uint16
	// OpenZones and OpenRegions is how many of them had a node open at the last step.
	OpenZones, OpenRegions int
}

func newLocations() locations {
	return locations{zoneIndex: map[[2]string]uint16{}, regionIndex: map[string]uint16{}}
}

// locate puts a node that was told of into its zone and region. What is in flight there goes with
// it.
func (l *locations) locate(n *Node) {
	if n.Known {
		l.count(n, -1)
	}
	region, name := n.Told.Region, n.Told.Zone
	zone, ok := l.zoneIndex[[2]string{region, name}]
	if !ok {
		zone = uint16(len(l.Zones))
		l.zoneIndex[[2]string{region, name}] = zone
		l.Zones = append(l.Zones, Location{Region: region, Name: name})
	}
	n.Zone = zone
	if n.Region, ok = l.regionIndex[region]; !ok {
		n.Region = uint16(len(l.Regions))
		l.regionIndex[region] = n.Region
		l.Regions = append(l.Regions, Location{Region: region})
	}
	l.count(n, 1)
}

// count adds what is in flight at a node to its zone and region, or takes it out of them.
func (l *locations) count(n *Node, sign int) {
	l.countOpen(n, sign)
	for _, at := range []*Location{&l.Zones[n.Zone], &l.Regions[n.Region]} {
		at.Receiving += sign * n.Receiving
		at.Sending += sign * n.Sending
	}
}

func (l *locations) countOpen(n *Node, sign int) {
	if n.Condition.Is(Open) {
		l.Zones[n.Zone].open += sign
		l.Regions[n.Region].open += sign
	}
}

// open counts the zones and regions with an open node.
func (l *locations) open() (zones, regions int) {
	for i := range l.Zones {
		if l.Zones[i].open > 0 {
			zones++
		}
	}
	for i := range l.Regions {
		if l.Regions[i].open > 0 {
			regions++
		}
	}
	return zones, regions
}
