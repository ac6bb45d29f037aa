// Package memory determines how much memory a server may use, and divides it among the parts of a
// server: caches, tables of recent writes, requests, answers, queues, and garbage.
//
// # Flow
//
// Find determines how much memory the process may use: the limit of its control group, or the
// memory of the machine, less a margin. Divide computes Sizes from a limit: the size of each part.
// Package embedded configures the parts with them, and shows them (Sizes.Parts) in a log line, as
// metrics and on a debug page.
//
// # How a limit is divided
//
// Each part has a weight, a least size without which a server does not work, and a greatest size
// beyond which memory would be useless. There is one level for all parts: each part gets its weight
// times the level, but at least its least size and at most its greatest size. The level is the
// highest one at which all parts together fit into the limit (Divide).
//
// # Invariants
//
//   - The sizes of all parts together are at most the limit.
//   - A part gets no smaller when the limit grows.
//   - A limit at which the parts do not get their least sizes is an error that names the least
//     limit.
//
// # Imports
//
// Nothing of Tidemark.
package memory
