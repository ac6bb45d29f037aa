//go:build !linux

package links

// ownerOf cannot find the owner on this system. So every connection counts as a connection of the
// clients.
func ownerOf(int, map[Host]int) (Host, bool) { return 0, false }
