'use strict';
// Every page: its data, and its elements by id.
const data = JSON.parse(document.getElementById('data').textContent);
const byId = (id) => document.getElementById(id);
