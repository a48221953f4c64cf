// What is only needed to test what is shipped for packages, containers and fleets.
module github.com/rxsteer/rxsteer/deploy

go 1.26.0

require github.com/rxsteer/rxsteer v0.0.0

require golang.org/x/sys v0.50.0 // indirect

replace github.com/rxsteer/rxsteer => ../
