// Package web is the page that the agent serves: what hurts now, on which queue and CPU, and what
// changed when. The page is one HTML file, one script, one style sheet and two chart libraries (uPlot, d3-sankey),
// all embedded; it loads nothing from elsewhere and can change nothing on the host: where a change is
// advised it shows the command to type.
//
// Live figures go out as server-sent events: "hello" (who serves), "state" (what is set and found, when it
// changes), "past" (the frames of the last minutes) and a "frame" per sample, encoded once for all viewers. The
// same page with its data inside is a report: see Report.
//
// It refuses to measure, to judge and to decide: Facts come from those who do.
package web
